"""Django: its database's deployment, transactions for handlers, steps of migrations, ``manage.py pysqlbox``.

With ``"pysqlbox.contrib.django"`` in ``INSTALLED_APPS``, ``manage.py pysqlbox …`` is the command line on the
database ``default``. Nothing here imports Django before it is called.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from pysqlbox.deployment import Deployment, connect
from pysqlbox.errors import InvalidArgument, InvalidState
from pysqlbox.extras import needed_for

__all__ = ["atomic", "database_url", "deploy", "deployment", "refuse"]


@contextlib.contextmanager
def atomic(using: str = "default") -> Iterator[Any]:
    """``transaction.atomic`` as a context manager of its connection: ``transactional=atomic``.

    Old connections are put away before and after, as Django does around its requests.
    """
    with needed_for("pysqlbox.contrib.django", "django"):
        from django.db import close_old_connections, connections, transaction

    close_old_connections()
    try:
        with transaction.atomic(using=using):
            yield connections[using]
    finally:
        close_old_connections()


def database_url(using: str = "default") -> str:
    """The URL of a database of Django's settings, which must be a PostgreSQL on psycopg 3."""
    with needed_for("pysqlbox.contrib.django", "django"):
        from django.db import connections

    connection = connections[using]
    if connection.vendor != "postgresql":
        raise InvalidArgument(
            f"using: database {using!r} must be a PostgreSQL; for another give connect() its URL yourself"
        )
    with needed_for("PostgreSQL", "binary"):
        from psycopg.conninfo import make_conninfo

    of_django = {"assume_role", "context", "cursor_factory", "isolation_level", "pool", "prepare_threshold"}
    given = connection.get_connection_params()
    return str(make_conninfo(**{key: value for key, value in given.items() if key not in of_django}))


def deployment(using: str = "default", schema: str = "infra") -> Deployment:
    """The deployment in a database of Django's settings, one for the process.

    Its methods take Django's connection: ``enqueue(…, connection=django.db.connection)``.
    """
    return _deployment(database_url(using), schema)


@functools.cache
def _deployment(url: str, schema: str) -> Deployment:
    return connect(url, schema=schema)


def deploy(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - Django passes it
    """The step of a migration that deploys: ``RunPython(deploy, refuse)``.

    It commits by itself, on a connection of its own, and changes nothing the second time.
    """
    from pysqlbox.deploy.migrate import migrate

    migrate(database_url(schema_editor.connection.alias))


def refuse(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - Django passes them
    """The way back of such a migration: there is none."""
    raise InvalidState(
        "pysqlbox's schema is not taken back, for it may hold messages: leave it, or drop it by hand"
    )
