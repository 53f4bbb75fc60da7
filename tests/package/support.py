"""Ways of holding a transaction in one's own hands: the driver, SQLAlchemy, Django."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote_plus

from pysqlbox.drivers import connect, parse_url
from tests.support.database import Database

Transaction = Callable[
    [Database], contextlib.AbstractContextManager[tuple[Any, Callable[[], None], Callable[[], None]]]
]
"""Opens a transaction: yields what to hand over as ``connection=``, how to commit it and how to undo it."""


@contextlib.contextmanager
def driver(db: Database) -> Iterator[Any]:
    """A connection of psycopg or pyodbc."""
    connection = connect(db.url)
    try:
        yield connection, connection.commit, connection.rollback
    finally:
        connection.close()


def sqlalchemy_engine(db: Database) -> Any:
    """An engine on the test database, which keeps no connections."""
    import sqlalchemy
    from sqlalchemy.pool import NullPool

    target = parse_url(db.url)
    if db.dialect == "postgres":
        # The driver's own connection: no way of writing a URL is tested here but our own.
        return sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=lambda: connect(target), poolclass=NullPool
        )
    url = f"mssql+pyodbc:///?odbc_connect={quote_plus('unused')}"
    return sqlalchemy.create_engine(
        url, creator=lambda: connect(target), poolclass=NullPool, use_setinputsizes=False
    )


@contextlib.contextmanager
def sqlalchemy_connection(db: Database) -> Iterator[Any]:
    """A SQLAlchemy connection."""
    with sqlalchemy_engine(db).connect() as connection:
        yield connection, connection.commit, connection.rollback


@contextlib.contextmanager
def sqlalchemy_session(db: Database) -> Iterator[Any]:
    """A SQLAlchemy session."""
    from sqlalchemy.orm import Session

    with Session(sqlalchemy_engine(db)) as session:
        yield session, session.commit, session.rollback


@contextlib.contextmanager
def sqlalchemy_scoped(db: Database) -> Iterator[Any]:
    """A scoped session, as web frameworks use it."""
    from sqlalchemy.orm import scoped_session, sessionmaker

    sessions = scoped_session(sessionmaker(sqlalchemy_engine(db)))
    try:
        yield sessions, sessions.commit, sessions.rollback
    finally:
        sessions.remove()


@contextlib.contextmanager
def django_alias(db: Database) -> Iterator[str]:
    """A database of Django's by the name it has there."""
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    info = connect(db.url)
    parameters = info.info.get_parameters() | {"password": info.info.password or None}
    info.close()
    alias = f"test_{uuid.uuid4().hex}"
    connections.databases[alias] = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parameters.get("dbname", ""),
        "USER": parameters.get("user", ""),
        "PASSWORD": parameters["password"] or "",
        "HOST": parameters.get("host", ""),
        "PORT": parameters.get("port", ""),
        "ATOMIC_REQUESTS": False,
        "AUTOCOMMIT": True,
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": False,
        "OPTIONS": {},
        "TIME_ZONE": None,
        "TEST": {},
    }
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections.databases[alias]


@contextlib.contextmanager
def django(db: Database) -> Iterator[Any]:
    """A Django connection with transactions of its own making."""
    from django.db import transaction

    with django_alias(db) as alias:
        from django.db import connections

        connection = connections[alias]
        transaction.set_autocommit(False, using=alias)
        yield connection, lambda: transaction.commit(using=alias), lambda: transaction.rollback(using=alias)
        transaction.rollback(using=alias)
        transaction.set_autocommit(True, using=alias)


HOLDERS: dict[str, Transaction] = {
    "driver": driver,
    "sqlalchemy connection": sqlalchemy_connection,
    "sqlalchemy session": sqlalchemy_session,
    "sqlalchemy scoped session": sqlalchemy_scoped,
    "django": django,
}


def wrong_connection(dialect: str) -> Any:
    """A connection of the other dialect, never opened."""
    if dialect == "postgres":
        import sqlite3

        return sqlite3.connect(":memory:")
    import psycopg

    return psycopg.Connection.__new__(psycopg.Connection)
