"""What docs/web.md takes for granted: a Django that knows the database, and a signed delivery."""

import time

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

import pysqlbox
from pysqlbox.relays.signing import key_of, sign
from pysqlbox.worker import Context

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


worker = pysqlbox.connect().worker(boxes=["inbox"], threads=1)
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def after() -> None:
    place_order("Ann")  # the last one of that name: plain WSGI's
    body = b'{"amount": 7}'
    headers = sign([key_of(secret)], "evt_1", int(time.time()), body)
    assert [receive(headers, body) for _ in range(2)] == ["created", "updated"]
    assert worker.drain(timeout=60) == 1
    assert receive(headers, body) == "done"
    from pysqlbox.contrib.django.tasks import PysqlboxBackend

    params = TASKS["default"]
    assert PysqlboxBackend("default", params).check() == []
    assert params["BACKEND"] == f"{PysqlboxBackend.__module__}.{PysqlboxBackend.__qualname__}"
    with db.connection() as connection:
        assert connection.execute("SELECT total FROM bookings").fetchall() == [(7,)]
    assert [each.topic for each in db.outbox.list("Ready")] == ["order.placed"]
    db.close()
