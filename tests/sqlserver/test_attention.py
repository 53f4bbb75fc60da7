"""A client that cuts a call off (its attention) leaves nothing behind, so that its retry counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

import pysqlbox
from pysqlbox.drivers import parse_url
from pysqlbox.errors import DatabaseUnavailable
from tests.contract.support import json_text
from tests.sqlserver.sessions import Background, hurried
from tests.support.database import Database, Session

Call = Callable[[Session], object]
KEY = UUID("33333333-3333-4333-8333-333333333333")


def _enqueue(session: Session) -> object:
    return session.one("outbox_enqueue", topic="t", payload="p", dedup_key="k")["outcome"]


def _enqueue_id(session: Session) -> object:
    return session.one("outbox_enqueue", topic="t", payload="p", message_id=KEY)["outcome"]


def _enqueue_group(session: Session) -> object:
    return session.one("outbox_enqueue", topic="t", payload="p", message_id=KEY, group_id="g")["outcome"]


def _enqueue_many(session: Session) -> object:
    records = [{"topic": "t", "payload": "p", "dedup_key": "k"}]
    return session.one("outbox_enqueue_many", messages=json_text(records))["outcome"]


def _inbox(session: Session) -> object:
    return session.one("inbox_enqueue", topic="t", source="s", message_id="1", payload="p")["outcome"]


def _inbox_many(session: Session) -> object:
    records = [{"topic": "t", "source": "s", "message_id": "1", "payload": "p"}]
    return session.one("inbox_enqueue_many", messages=json_text(records))["outcome"]


def _seen(session: Session) -> object:
    row = session.one("inbox_already_processed", message_id="1", source="s", hash=None)
    return "created" if not row["already_processed"] else "done"


def _begin(session: Session) -> object:
    row = session.one("ledger_try_begin", key="k", owner="o", lease_seconds=None, handler=None)
    return "created" if row["status"] == "Acquired" else row["status"]


def _mark(session: Session) -> object:
    return "created" if session.value("ledger_mark_processed", key="k", lease_id=None) == 1 else "none"


CALLS: dict[str, tuple[Call, str]] = {
    "outbox_enqueue by dedup_key": (_enqueue, "outbox_messages"),
    "outbox_enqueue by message_id": (_enqueue_id, "outbox_messages"),
    "outbox_enqueue into a group": (_enqueue_group, "outbox_messages"),
    "outbox_enqueue_many": (_enqueue_many, "outbox_messages"),
    "inbox_enqueue": (_inbox, "inbox_messages"),
    "inbox_enqueue_many": (_inbox_many, "inbox_messages"),
    "inbox_already_processed": (_seen, "inbox_messages"),
    "ledger_try_begin": (_begin, "ledger"),
    "ledger_mark_processed": (_mark, "ledger"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_was_cut_off_leaves_no_transaction(server: Database, name: str) -> None:
    """It waits for another one's key; after the client's timeout the retry on that connection commits."""
    call, table = CALLS[name]
    with server.session() as holder, hurried(server, 2) as caller:
        call(holder)
        with pytest.raises(DatabaseUnavailable, match=r"(?i)timeout"):
            call(caller)
        assert caller.sql("SELECT @@TRANCOUNT AS n")[0]["n"] == 0
        holder.rollback()
        assert call(caller) == "created"
    # The connection is closed: what was only seemingly committed would be gone now.
    assert server.sql(f"SELECT count(*) AS n FROM {{schema}}.{table}")[0]["n"] == 1


@pytest.mark.parametrize("name", CALLS)
def test_in_a_callers_transaction_it_undoes_the_whole(server: Database, name: str) -> None:
    """Never its first half behind the caller's back: the server has rolled it back, the commit is empty."""
    call, table = CALLS[name]
    with server.session() as holder, hurried(server, 2) as caller:
        call(holder)
        caller.connection.autocommit = False
        caller.call("outbox_enqueue", topic="before", payload="p")
        with pytest.raises(DatabaseUnavailable, match=r"(?i)timeout"):
            call(caller)
        assert caller.sql("SELECT @@TRANCOUNT AS n")[0]["n"] == 0
        holder.rollback()
        caller.commit()
    for each in {table, "outbox_messages"}:
        assert server.sql(f"SELECT count(*) AS n FROM {{schema}}.{each}")[0]["n"] == 0


def test_the_package_tries_again_on_another_connection(server: Database) -> None:
    """The pool never hands out a connection whose call was cut off."""
    target = replace(parse_url(server.url), query_timeout=2)
    with server.session() as holder, pysqlbox.connect(target, schema=server.schema, pool_size=1) as db:
        _enqueue(holder)
        with pytest.raises(DatabaseUnavailable):
            db.outbox.enqueue("t", "p", dedup_key="k")
        holder.rollback()
        assert db.outbox.enqueue("t", "p", dedup_key="k").outcome == "created"
    assert server.sql("SELECT count(*) AS n FROM {schema}.outbox_messages")[0]["n"] == 1


def test_a_waiting_call_goes_on_when_the_key_is_free(server: Database) -> None:
    """The control: without a timeout the same wait ends with the holder's transaction."""
    with server.session() as holder, server.session() as caller:
        _enqueue(holder)
        waiting = Background(server, caller, _enqueue)
        assert waiting.is_blocked()
        holder.commit()
        assert waiting.result() == "duplicate"
        caller.commit()
