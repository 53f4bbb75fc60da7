"""What docs/web.md takes for granted: a Django that knows the database."""

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

import pysqlbox

_given = conninfo_to_dict(URL)
_database = {"NAME": _given["dbname"], "USER": _given["user"], "HOST": _given["host"]}
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **_database}}, USE_TZ=True
)
django.setup()

from django.db import models  # noqa: E402  # it reads the settings


class Order(models.Model):
    customer = models.TextField()

    class Meta:
        app_label = "shop"
        db_table = "orders"


def after() -> None:
    place_order("Ann")  # the last one of that name: plain WSGI's
    from pysqlbox.contrib.django.tasks import PysqlboxBackend

    params = TASKS["default"]
    assert PysqlboxBackend("default", params).check() == []
    assert params["BACKEND"] == f"{PysqlboxBackend.__module__}.{PysqlboxBackend.__qualname__}"
    assert [each.topic for each in db.outbox.list("Ready")] == ["order.placed"]
    db.close()
