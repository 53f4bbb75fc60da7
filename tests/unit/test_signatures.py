"""Every routine has one method of its name, less the prefix, with the routine's own argument names."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import pytest

from pysqlbox import (
    AsyncAudit,
    AsyncDeployment,
    AsyncInbox,
    AsyncJoins,
    AsyncLedger,
    AsyncOutbox,
    AsyncOutboxStore,
    AsyncRegister,
    AsyncSchedules,
    Audit,
    DatabaseUnavailable,
    Deployment,
    Inbox,
    Joins,
    Ledger,
    Outbox,
    OutboxStore,
    Register,
    Schedules,
    connect,
    connect_async,
)
from pysqlbox.idempotent import Idempotent
from pysqlbox.ledger import LedgerMethods
from pysqlbox.names import DIALECTS, Dialect
from pysqlbox.retry import Retries
from tools.routines import Routine, routines

OWNERS: dict[str, type] = {
    "outbox": Outbox,
    "inbox": Inbox,
    "join": Joins,
    "ledger": Ledger,
    "audit": Audit,
    "worker": Register,
}
DEFAULTS = {
    ("claim", "lease_seconds"): 30,
    ("claim", "batch_size"): 50,
    ("extend", "lease_seconds"): 30,
    ("settle", "claim_batch"): 0,
    ("settle", "lease_seconds"): 30,
    ("reap", "batch_size"): 1000,
    ("cleanup", "batch_size"): 1000,
    ("cleanup_dead", "batch_size"): 1000,
    ("dead_letters", "limit"): 100,
    ("dead_letters", "after_id"): 0,
    ("list", "limit"): 100,
    ("list", "after_id"): 0,
    ("dead_causes", "limit"): 100,
    ("dead_letter_causes", "limit"): 100,
    ("dead_letter_causes", "after_id"): 0,
    ("workers", "limit"): 100,
    ("groups", "limit"): 100,
    ("groups", "only_blocked"): False,
    ("schedule_due", "limit"): 100,
    ("wait", "fail_if_any_step_failed"): True,
}
"""What an argument is if it is not given; those not named here are None, which leaves it to the routine."""
SHORTER = {("enqueue", "delay_seconds"): "delay"}
"""Arguments that Python calls otherwise: a delay may be a timedelta, and stands beside due_at."""


@cache
def _public(dialect: Dialect) -> dict[str, Routine]:
    found: dict[str, Routine] = {}
    for routine in routines(dialect):
        if not routine.internal:
            found.setdefault(routine.name, routine)  # an overload for other types comes second
    return found


def _method(name: str) -> Callable[..., Any]:
    if name in ("schema_boxes", "schema_place", "schema_version", "doctor", "metrics"):
        owner: type = Deployment
        step = name
    else:
        prefix, _, step = name.partition("_")
        owner = OWNERS[prefix]
    found: Callable[..., Any] = getattr(owner, step)
    return found


@pytest.mark.parametrize("name", sorted(_public("postgres")))
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_method_takes_its_routines_arguments_in_their_order(dialect: Dialect, name: str) -> None:
    routine = _public(dialect)[name]
    parameters = list(inspect.signature(_method(name)).parameters.values())[1:]
    own = [each for each in parameters if each.name != "connection"]
    step = name.partition("_")[2]
    assert [each.name for each in own] == [
        SHORTER.get((step, each.name), each.name) for each in routine.parameters
    ]
    for method_side, sql_side in zip(own, routine.parameters, strict=True):
        if method_side.default is inspect.Parameter.empty:
            assert not sql_side.optional, f"{name}: {sql_side.name} has a default in SQL"
        else:
            assert method_side.default == DEFAULTS.get((step, method_side.name)), method_side.name
            assert sql_side.optional or (step, method_side.name) in DEFAULTS


@pytest.mark.parametrize("name", sorted(_public("postgres")))
def test_what_has_no_default_may_be_given_by_position(name: str) -> None:
    for each in list(inspect.signature(_method(name)).parameters.values())[1:]:
        if each.default is inspect.Parameter.empty:
            assert each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


@pytest.mark.parametrize("name", sorted(_public("postgres")))
def test_every_method_joins_a_callers_transaction(name: str) -> None:
    if name in ("schema_place", "schema_version"):
        return
    connection = inspect.signature(_method(name)).parameters["connection"]
    assert connection.kind is inspect.Parameter.KEYWORD_ONLY
    assert connection.default is None


FACES: list[tuple[type, type]] = [
    (Deployment, AsyncDeployment),
    (Outbox, AsyncOutbox),
    (OutboxStore, AsyncOutboxStore),
    (Inbox, AsyncInbox),
    (Joins, AsyncJoins),
    (Ledger, AsyncLedger),
    (Schedules, AsyncSchedules),
    (Audit, AsyncAudit),
    (Register, AsyncRegister),
]
WITHOUT_A_WAIT = {"measure", "worker"}
"""Methods that ask the database nothing, and so are the same on both faces."""


def _methods(owner: type) -> dict[str, Callable[..., Any]]:
    return {
        name: found
        for name in dir(owner)
        if not name.startswith("_") and inspect.isfunction(found := inspect.getattr_static(owner, name))
    }


@pytest.mark.parametrize(("blocking", "awaiting"), FACES)
def test_the_asynchronous_face_has_the_same_methods(blocking: type, awaiting: type) -> None:
    ours, theirs = _methods(blocking), _methods(awaiting)
    assert ours.keys() == theirs.keys()
    for name, method in theirs.items():
        one, other = inspect.signature(ours[name]), inspect.signature(method)
        assert one.parameters == other.parameters, name
        if name not in {*WITHOUT_A_WAIT, "box", "connection", "draw_place", "kind_of", "transaction"}:
            assert one.return_annotation == other.return_annotation, name
            assert inspect.iscoroutinefunction(method), name
            assert not inspect.iscoroutinefunction(ours[name]), name


@pytest.mark.parametrize("connects", [connect, connect_async])
def test_what_an_idempotent_consumer_asks_is_there_on_both_faces(connects: Callable[..., Any]) -> None:
    """Whatever of it asks the ledger is awaited where the ledger is; the rest asks nothing by itself."""
    db = connects("postgresql://127.0.0.1:1/nowhere", retries=Retries(attempts=1))
    once = Idempotent(db, bus="b", group="g")
    for name in _methods(Idempotent).keys() - {"attempt", "blocking_ledger", "key"}:
        arguments = () if name == "cleanup" else ("key",)
        if connects is connect:
            with pytest.raises(DatabaseUnavailable):
                getattr(once, name)(*arguments)
        else:
            waiting = getattr(once, name)(*arguments)
            assert inspect.iscoroutine(waiting), name
            with pytest.raises(DatabaseUnavailable):
                asyncio.run(waiting)


def test_connect_and_connect_async_take_the_same() -> None:
    one, other = inspect.signature(connect), inspect.signature(connect_async)
    assert one.parameters == other.parameters
    assert not inspect.iscoroutinefunction(connect_async), "nothing is connected before the first call"


def test_a_description_alone_has_no_methods() -> None:
    nowhere = connect_async("postgresql://127.0.0.1/nowhere")
    with pytest.raises(TypeError, match="only a description"):
        attrgetter("get")(LedgerMethods(nowhere))


def test_help_shows_what_a_method_answers() -> None:
    assert inspect.signature(Outbox.ack).return_annotation == "int"
    assert inspect.signature(AsyncOutbox.enqueue).return_annotation == "Enqueued"
    assert "lease" in (Outbox.claim.__doc__ or "")


def test_messages_have_the_columns_of_their_routines() -> None:
    import dataclasses

    import pysqlbox

    types = {
        "outbox_claim": pysqlbox.OutboxMessage,
        "inbox_claim": pysqlbox.InboxMessage,
        "outbox_get": pysqlbox.StoredOutboxMessage,
        "inbox_get": pysqlbox.StoredInboxMessage,
        "outbox_find": pysqlbox.StoredOutboxMessage,
        "inbox_find": pysqlbox.StoredInboxMessage,
        "outbox_list": pysqlbox.ListedOutboxMessage,
        "inbox_list": pysqlbox.ListedInboxMessage,
        "outbox_dead_letters": pysqlbox.OutboxDeadLetter,
        "inbox_dead_letters": pysqlbox.InboxDeadLetter,
        "outbox_dead_causes": pysqlbox.DeadCause,
        "outbox_dead_letter_causes": pysqlbox.DeadLetterCause,
        "outbox_workers": pysqlbox.WorkerSeen,
        "outbox_groups": pysqlbox.Group,
        "outbox_extend": pysqlbox.Extended,
        "outbox_retry": pysqlbox.Retried,
        "outbox_stats": pysqlbox.TopicStats,
        "metrics": pysqlbox.BoxMetrics,
        "inbox_already_processed": pysqlbox.AlreadyProcessed,
        "join_get": pysqlbox.Join,
        "join_list": pysqlbox.Join,
        "join_resolve": pysqlbox.JoinResolution,
        "join_wait": pysqlbox.WaitEnqueued,
        "ledger_try_begin": pysqlbox.LedgerClaim,
        "ledger_get": pysqlbox.LedgerEntry,
        "ledger_list": pysqlbox.LedgerKey,
    }
    for dialect in DIALECTS:
        for name, kind in types.items():
            fields = tuple(each.name for each in dataclasses.fields(kind))
            assert fields == _public(dialect)[name].header.names("returns"), name
