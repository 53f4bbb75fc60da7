"""What the migrations under ``migrations/`` do, whether pysqlbox runs them or the stock yoyo command.

Stock yoyo has no option for the schema: ``PYSQLBOX_SCHEMA`` names it (default ``infra``), and
``PYSQLBOX_BOXES`` lists boxes as ``name:kind`` with commas between, ``PYSQLBOX_PLACE`` is ``--place``.
``PYSQLBOX_ALLOW_UNFIT_DATABASE=1``
deploys to a database whose settings lack something, as ``--allow-unfit-database`` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import psycopg

from pysqlbox.deploy import fitness
from pysqlbox.deploy.plan import Deployment
from pysqlbox.deploy.store import Store
from pysqlbox.deploy.store_mssql import MssqlStore
from pysqlbox.deploy.store_postgres import PostgresStore
from pysqlbox.deploy.waiting import LOCK_SECONDS
from pysqlbox.errors import InvalidState
from pysqlbox.names import check_schema_name, parse_box
from pysqlbox.places import parse_place

#: The deployment that pysqlbox runs now; unset under the stock yoyo command.
current: ContextVar[Deployment | None] = ContextVar("current", default=None)


def open_store(connection: Any, schema: str) -> Store:
    """The store of whichever dialect the connection speaks."""
    if isinstance(connection, psycopg.Connection):
        return PostgresStore(connection, check_schema_name("postgres", schema))
    return MssqlStore(connection, check_schema_name("mssql", schema))


def apply_tables(version: int) -> Callable[[Any], None]:
    """A step that brings the tables to a version."""

    def step(connection: Any) -> None:
        _deployment(connection).apply_tables(version)

    return step


def apply_routines(connection: Any) -> None:
    """The step that brings routines and views up to date."""
    deployment = _deployment(connection)
    deployment.apply_tables()
    deployment.apply_routines()
    deployment.apply_place()


def refuse_rollback(connection: Any) -> None:  # noqa: ARG001 - yoyo passes it
    """Tables hold messages: going back is a new migration, never an automatic one."""
    raise InvalidState(
        "pysqlbox does not roll its migrations back: run a newer release's migrate, or restore a backup"
    )


def _deployment(connection: Any) -> Deployment:
    running = current.get()
    if running is not None:
        return running
    store = open_store(connection, os.environ.get("PYSQLBOX_SCHEMA") or "infra")
    store.begin()
    fitness.require(store, allow=os.environ.get(fitness.ALLOW_VARIABLE) == "1")
    store.lock()
    store.limit_waits(LOCK_SECONDS)
    named = os.environ.get("PYSQLBOX_BOXES", "")
    return Deployment(
        store,
        boxes=[parse_box(text.strip()) for text in named.split(",") if text.strip()],
        place=parse_place(os.environ.get("PYSQLBOX_PLACE") or None),
    )
