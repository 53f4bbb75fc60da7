"""A call that is turned away has written nothing, and its caller's transaction goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from pysqlbox.errors import PysqlboxError
from tests.contract.joins import Joins
from tests.contract.support import NIL, OWNER, Box, json_text
from tests.support.database import Database, Session

UNKNOWN = UUID(int=7)
MANY = json_text([{"topic": "t", "payload": "p", "source": "s", "message_id": "m"}, {"topic": ""}])
ONE: dict[str, object] = {"topic": "t", "payload": "p"}
KEY: dict[str, object] = {"message_id": "", "source": "s"}

WRONG: dict[str, dict[str, object]] = {
    "outbox_enqueue": ONE | {"topic": ""},
    "outbox_enqueue_many": {"messages": MANY},
    "outbox_enqueue_payloads": {"topic": "t", "payloads": [None]},
    "inbox_enqueue": ONE | {"source": "s", "message_id": "m", "delay_seconds": -1},
    "inbox_enqueue_many": {"messages": MANY},
    "inbox_already_processed": KEY,
    "inbox_mark_processing": KEY,
    "inbox_mark_processed": KEY,
    "inbox_mark_dead": KEY,
    "inbox_find": KEY,
    "join_start": {"tenant_id": "", "expected_steps": 1},
    "join_attach": {"join_id": UNKNOWN, "message_id": UNKNOWN},
    "join_attach_many": {"join_id": UNKNOWN, "message_ids": []},
    "join_report_completed": {"join_id": UNKNOWN, "message_id": UNKNOWN},
    "join_report_failed": {"join_id": None, "message_id": UNKNOWN},
    "join_wait": {"join_id": UNKNOWN},
    "join_resolve": {"join_id": UNKNOWN},
    "join_cancel": {"join_id": UNKNOWN},
    "join_get": {"join_id": UNKNOWN},
    "join_list": {"after": UNKNOWN},
    "ledger_try_begin": {"key": "k", "lease_seconds": 0},
    "ledger_mark_processed": {"key": ""},
    "ledger_release": {"key": "k", "lease_id": None},
    "ledger_get": {"key": None},
    "ledger_list": {"limit": 0},
    "ledger_cleanup": {"retention_seconds": -1},
    "outbox_schedule_set": ONE | {"name": "s", "every_seconds": 0},
    "outbox_schedule_remove": {"name": "s"},
    "outbox_schedule_due": {"limit": 0},
    "outbox_schedule_fire": {"name": "s", "due_at": None, "next_at": None},
    "outbox_schedule_skip": {"name": "s", "due_at": None, "next_at": None},
    "outbox_claim": {"owner_token": OWNER, "lease_seconds": 0, "batch_size": 1},
    "outbox_ack": {"owner_token": NIL, "ids": [1]},
    "outbox_abandon": {"owner_token": OWNER, "ids": [1], "delay_seconds": 0},
    "outbox_retry": {"owner_token": OWNER, "ids": [1], "max_attempts": -1},
    "outbox_release": {"owner_token": OWNER, "ids": [1], "delay_seconds": -1},
    "outbox_fail": {"owner_token": OWNER, "ids": [1], "error": None},
    "outbox_extend": {"owner_token": OWNER, "ids": [1], "lease_seconds": 0},
    "outbox_settle": {"owner_token": OWNER, "outcomes": json_text([{"ids": ["x"], "result": "ack"}])},
    "inbox_settle": {"owner_token": OWNER, "outcomes": "[]", "claim_batch": 1, "lease_seconds": 0},
    "outbox_reap": {"batch_size": 0},
    "outbox_get": {"id": 7},
    "outbox_list": {"status": "ready"},
    "inbox_list": {"status": "Done", "limit": 0},
    "outbox_dead_letters": {"limit": 0},
    "outbox_dead_causes": {"limit": 0},
    "outbox_groups": {"limit": 10_001},
    "outbox_replay": {"ids": None},
    "outbox_discard": {"ids": None},
    "outbox_cancel": {"ids": None},
    "inbox_cancel": {"ids": None, "reason": "because"},
    "outbox_reschedule": {"ids": None},
    "outbox_cleanup": {"retention_seconds": -1},
    "outbox_cleanup_dead": {"retention_seconds": -1},
    "outbox_configure": {"name": "x", "value": "1"},
}
"""A call of each routine that cannot be served."""


@contextlib.contextmanager
def caught(session: Session) -> Iterator[None]:
    """Expects an error, and goes on behind it, as a caller that catches it does."""
    if session.dialect == "postgres":
        session.sql("SAVEPOINT before")
    with pytest.raises(PysqlboxError):
        yield
    if session.dialect == "postgres":
        session.sql("ROLLBACK TO SAVEPOINT before")


@pytest.mark.parametrize("routine", list(WRONG))
def test_contract_a_wrong_call_leaves_the_callers_transaction_usable(outbox: Box, routine: str) -> None:
    with outbox.db.session() as session:
        inside = outbox.on(session)
        before = inside.put("before")
        with caught(session):
            session.call(routine, **WRONG[routine])
        after = inside.put("after")
        session.commit()
    assert [outbox.status(before), outbox.status(after)] == ["Ready", "Ready"]
    assert outbox.count() == 2


@pytest.mark.parametrize("routine", list(WRONG))
@pytest.mark.dialect("mssql")
def test_contract_a_batch_that_catches_a_wrong_call_goes_on(outbox: Box, routine: str) -> None:
    """The transaction is neither doomed nor of another depth, whatever the caller's own setting is."""
    arguments = {name: _literal(value) for name, value in WRONG[routine].items()}
    named = ", ".join(f"@{name} = {value}" for name, value in arguments.items())
    with outbox.db.session() as session:
        for setting in ("ON", "OFF"):
            outbox.on(session).put()
            (row,) = session.sql(
                f"""
                SET XACT_ABORT {setting};
                DECLARE @number int;
                BEGIN TRY
                    EXEC {{schema}}.{routine} {named};
                END TRY
                BEGIN CATCH
                    SET @number = ERROR_NUMBER();
                END CATCH;
                SELECT @number AS number, @@TRANCOUNT AS depth, XACT_STATE() AS state;
                """
            )
            assert row["number"] in (51001, 51002, 51003)
            assert (row["depth"], row["state"]) == (1, 1)
        session.commit()
    assert outbox.count() == 2


def test_contract_a_join_that_takes_no_more_steps_leaves_the_callers_transaction_usable(joins: Joins) -> None:
    full, cancelled = joins.start(1), joins.start(1)
    joins.attach(full, joins.put())
    joins.cancel(cancelled)
    step = joins.put()
    with joins.box.db.session() as session:
        inside = joins.on(session)
        kept = inside.start(1)
        for join, message in ((full, step), (cancelled, step), (kept, uuid4())):
            with caught(session):
                inside.attach(join, message)
        with caught(session):
            inside.wait(cancelled)
        assert inside.attach(kept, step)
        session.commit()
    assert joins.get(kept)["status"] == "Pending"
    assert [len(joins.members(join)) for join in (full, cancelled, kept)] == [1, 0, 1]


def test_contract_a_wrong_call_alone_leaves_nothing_open(db: Database, outbox: Box) -> None:
    """Without a transaction of the caller's there is none behind the error."""
    with pytest.raises(PysqlboxError):
        outbox.claim(NIL)
    for routine, arguments in WRONG.items():
        with pytest.raises(PysqlboxError):
            db.call(routine, **arguments)
    if db.dialect == "mssql":
        assert db.sql("SELECT @@TRANCOUNT AS depth")[0]["depth"] == 0
    made = outbox.put()
    assert outbox.take(OWNER) == [made]


@pytest.mark.parametrize("routine", list(WRONG))
def test_contract_what_follows_a_wrong_call_is_committed(outbox: Box, routine: str) -> None:
    """On the connection of the wrong call, where each call is a transaction of its own."""
    with pytest.raises(PysqlboxError):
        outbox.db.call(routine, **WRONG[routine])
    made = outbox.put()
    with outbox.db.session() as other:
        assert outbox.on(other).get(made)["status"] == "Ready"


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return _literal(json_text(value))
    if isinstance(value, str | UUID):
        return "N'" + str(value).replace("'", "''") + "'"
    return str(value)
