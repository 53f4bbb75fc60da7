"""What a login of each role may do: the routines that name its role in their headers, and nothing else."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest

import pysqlbox
from pysqlbox import (
    AccessDenied,
    InvalidArgument,
    InvalidState,
    NotFound,
    OutboxMessage,
    PysqlboxError,
    metrics,
)
from pysqlbox.deploy.migrate import migrate
from pysqlbox.names import merge_boxes
from pysqlbox.worker import fixed
from tests.contract.support import is_babelfish
from tests.metrics.reading import read, value
from tests.support.boxes import BOXES
from tests.support.database import Database, execute_once
from tests.support.engines import Engine
from tools.routines import Routine, routines

OWNER = UUID("11111111-1111-4111-8111-111111111111")
INCLUDED = {
    "producer": {"producer"},
    "worker": {"producer", "worker"},
    "viewer": {"viewer"},
    "operator": {"producer", "worker", "viewer", "operator"},
}
"""Whose routines a role may execute."""
VIEWS = {
    "viewer": {"outbox_joins", "outbox_join_members"},
    "operator": {
        *("outbox_joins", "outbox_join_members", "audit_log"),
        *("outbox_messages", "inbox_messages", "orders_messages", "mail_messages"),
    },
}
"""The views that a role may read."""
VALUES: dict[str, object] = {
    "owner_token": OWNER,
    "ids": [],
    "topic": "t",
    "payload": "p",
    "payloads": [],
    "messages": "[]",
    "outcomes": "[]",
    "id": 1,
    "source": "s",
    "lease_seconds": 30,
    "batch_size": 1,
    "error": "e",
    "retention_seconds": 1,
    "name": "max_attempts",
    "value": "10",
    "status": "Done",
    "join_id": uuid4(),
    "tenant_id": "t",
    "expected_steps": 1,
    "key": "k",
    "owner": "o",
    "lease_id": uuid4(),
    "message_ids": [],
    "reason": None,
}
"""A value for each parameter that a routine must be given."""


@dataclass(frozen=True, slots=True)
class Logins:
    """A deployment with roles, and a login for each of them."""

    owner: Database
    urls: dict[str, str]

    def as_role(self, role: str) -> Database:
        """The deployment, as the login of a role sees it."""
        return Database(self.owner.dialect, self.owner.schema, self.urls[role], self.owner.engine_id)


@pytest.fixture
def logins(engine: Engine, empty_url: str) -> Iterator[Logins]:
    """The logins, each with its role alone; they are gone after the test."""
    schema = f"r{secrets.token_hex(4)}"
    migrate(empty_url, schema=schema, boxes=BOXES, roles=True)
    urls: dict[str, str] = {}
    made: list[str] = []
    for role in INCLUDED:
        login, password = f"{schema}_{role}_login", f"Aa1!{secrets.token_hex(12)}"
        if engine.dialect == "postgres":
            engine.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{password}' IN ROLE {schema}_{role}")
        else:
            engine.execute(f"CREATE LOGIN {login} WITH PASSWORD = '{password}'")
            execute_once(empty_url, f"CREATE USER {login} FOR LOGIN {login}")
            execute_once(empty_url, f"ALTER ROLE {schema}_{role} ADD MEMBER {login}")
        made.append(login)
        scheme, _, rest = empty_url.partition("://")
        place = rest.partition("@")[2]
        urls[role] = f"{scheme}://{login}:{quote(password)}@{place}"
    owner = Database(engine.dialect, schema, empty_url, engine.id)
    try:
        yield Logins(owner, urls)
    finally:
        owner.close()
        for login, role in zip(made, INCLUDED, strict=True):
            if engine.dialect == "postgres":
                execute_once(empty_url, f"DROP OWNED BY {schema}_{role}")
                engine.execute(f"DROP ROLE {login}")
                engine.execute(f"DROP ROLE {schema}_{role}")
            else:
                execute_once(empty_url, f"DROP USER {login}")
                engine.execute(f"DROP LOGIN {login}")


def public_routines(db: Database) -> dict[str, Routine]:
    """Every routine that anybody may be granted; of overloads the first."""
    found: dict[str, Routine] = {}
    for routine in routines(db.dialect, schema=db.schema, boxes=merge_boxes(BOXES)):
        found.setdefault(routine.name, routine)
    return found


def arguments_of(routine: Routine) -> dict[str, object]:
    """Values for what has no default."""
    needed = {each.name: VALUES.get(each.name) for each in routine.parameters if not each.optional}
    if "message_id" in needed:
        needed["message_id"] = "m" if routine.box is not None and routine.box.kind == "inbox" else uuid4()
    return needed


def denies(db: Database, name: str) -> pytest.RaisesExc[PysqlboxError]:
    """Expects that the login may not call a routine; Babelfish has no number for that, only a text."""
    if is_babelfish(db):
        return pytest.raises(PysqlboxError, match=f"permission denied for procedure {name};")
    return pytest.raises(AccessDenied)


def check_denied(db: Database, routine: Routine) -> None:
    """The login may not call it."""
    with denies(db, routine.name):
        db.call(routine.name, **arguments_of(routine))


def check_allowed(db: Database, routine: Routine) -> None:
    """The login may call it, even if the routine finds nothing by these arguments.

    In Babelfish a procedure reads tables and calls others with its caller's rights, so it comes no further.
    """
    passed_over: tuple[type[Exception], ...] = (InvalidArgument, InvalidState, NotFound)
    try:
        db.call(routine.name, **arguments_of(routine))
    except passed_over:
        return
    except PysqlboxError as error:
        if not is_babelfish(db) or f"permission denied for procedure {routine.name};" in str(error):
            raise


@pytest.fixture
def chained(logins: Logins) -> Logins:
    """The logins, on a server whose routines read the tables of their owner for whoever may call them."""
    if is_babelfish(logins.owner):
        pytest.skip("Babelfish's procedures read tables with their caller's rights")
    return logins


@pytest.mark.parametrize("role", INCLUDED)
def test_a_role_may_call_what_names_it_and_nothing_else(logins: Logins, role: str) -> None:
    """Each routine is called; the internal ones are nobody's."""
    found = public_routines(logins.owner)
    with contextlib.closing(logins.as_role(role)) as db:
        for routine in found.values():
            if routine.internal:
                continue
            if INCLUDED[role] & set(routine.header.names("role")):
                check_allowed(db, routine)
            else:
                check_denied(db, routine)
        for name in ("_reject", "_outbox_regroup"):
            check_denied(db, found[name])


@pytest.mark.parametrize("role", INCLUDED)
def test_a_role_has_no_right_on_any_table(logins: Logins, role: str) -> None:
    """Reading and writing are tried; an operator reads the views, a viewer those without payloads."""
    owner = logins.owner
    query = (
        "SELECT table_name AS name, table_type AS kind FROM information_schema.tables WHERE table_schema = %s"
    )
    relations = {str(row["name"]): str(row["kind"]) for row in owner.sql(query, owner.schema)}
    views = {name for name, kind in relations.items() if kind == "VIEW"}
    assert len(relations) > 30
    assert VIEWS["operator"] <= views
    with contextlib.closing(logins.as_role(role)) as db:
        readable = set()
        for name in relations:
            try:
                db.sql(f"SELECT count(*) AS n FROM {{schema}}.{name}")
            except PysqlboxError:
                continue
            readable.add(name)
        assert readable == VIEWS.get(role, set())
        for name in ("outbox_message", "outbox_settings", "_version"):
            with pytest.raises(PysqlboxError):
                db.sql(f"DELETE FROM {{schema}}.{name}")


def test_a_viewer_sees_neither_payloads_nor_headers(chained: Logins) -> None:
    """Whatever it may call, in whatever status the messages are."""
    logins, owner = chained, chained.owner
    hidden: dict[str, object] = {"payload": "PAYLOAD-17", "headers": '{"h": "HEADER-17"}', "group_id": "g"}
    sent = [owner.one("outbox_enqueue", topic=topic, **hidden) for topic in ("done", "dead", "held", "ready")]
    owner.call("inbox_enqueue", topic="t", source="s", message_id="m", **hidden)
    join_id = owner.one("join_start", tenant_id="t", expected_steps=1)["join_id"]
    owner.call("join_attach", join_id=join_id, message_id=sent[3]["message_id"])
    owner.call("join_wait", join_id=join_id, on_complete_topic="x", on_complete_payload="PAYLOAD-17")
    owner.call("ledger_try_begin", key="k", owner=OWNER)
    for step, more in (("ack", {}), ("fail", {"error": "boom 1"})):
        (taken,) = owner.call("outbox_claim", owner_token=OWNER, lease_seconds=60, batch_size=1)
        owner.call(f"outbox_{step}", owner_token=OWNER, ids=[taken["id"]], **more)
    owner.call("outbox_claim", owner_token=OWNER, lease_seconds=60, batch_size=1)
    statuses = {
        "outbox": ("Ready", "InProgress", "Done", "Failed", "Expired", "Cancelled"),
        "inbox": ("Seen", "Processing", "Done", "Dead", "Expired", "Cancelled"),
    }
    with contextlib.closing(logins.as_role("viewer")) as db:
        shown: list[Any] = []
        found = {
            status: db.call(f"{box}_list", status=status) for box in statuses for status in statuses[box]
        }
        assert [len(found[status]) for status in ("Failed", "InProgress", "Processing")] == [1, 1, 1]
        shown += found.values()
        causes = db.call("outbox_dead_causes")
        assert [row["cause"] for row in causes] == ["boom #"]
        groups = db.call("outbox_groups")
        assert [(row["group_id"], row["waiting"], row["leased"]) for row in groups] == [("g", 1, 1)]
        assert db.call("outbox_stats")[-1]["done"] == 1
        shown += [causes, groups, db.call("inbox_groups"), db.call("inbox_stats"), db.call("outbox_next_due")]
        shown += [db.call("join_get", join_id=join_id), db.call("join_list"), db.call("ledger_list")]
        shown += [db.call("ledger_get", key="k"), db.call("schema_version")]
        shown += [db.sql(f"SELECT * FROM {{schema}}.{name}") for name in VIEWS["viewer"]]
        assert all(shown[len(found) :])
        assert "PAYLOAD-17" not in str(shown)
        assert "HEADER-17" not in str(shown)
        for name, arguments in (
            ("get", {"id": sent[0]["id"]}),
            ("find", {"message_id": sent[0]["message_id"]}),
        ):
            with denies(db, f"outbox_{name}"):
                db.call(f"outbox_{name}", **arguments)
        with pytest.raises(AccessDenied):
            db.call("outbox_dead_letters")


def test_a_workers_role_suffices_for_a_workers_life(chained: Logins) -> None:
    """Claims, settlements, retries, leases kept and taken back, joins, upkeep, listening: none is denied."""
    handled: list[str] = []
    with pysqlbox.connect(chained.urls["worker"], schema=chained.owner.schema) as db:
        lost = db.outbox.enqueue("lost", "p")
        assert [each.id for each in db.outbox.claim(OWNER, lease_seconds=1)] == [lost.id]
        join_id = db.joins.start("tenant", 1)
        step = db.outbox.enqueue("step", "p")
        assert db.joins.attach(join_id, step.message_id)
        db.joins.wait(join_id, on_complete_topic="after")
        db.outbox.enqueue("flaky", "p")
        db.outbox.enqueue("hopeless", "p")
        worker = db.worker(
            boxes=("outbox", "inbox"),
            threads=2,
            poll_seconds=0.05,
            lease_seconds=3,
            backoff=fixed(0.01),
            max_attempts=2,
            reap_seconds=0.2,
            cleanup_seconds=0.2,
            retention=timedelta(0),
        )

        @worker.handler("lost")
        @worker.handler("step")
        @worker.handler("after")
        def note(message: OutboxMessage) -> None:
            handled.append(message.topic)

        @worker.handler("flaky")
        def fail_once(message: OutboxMessage) -> None:
            if message.attempt == 0:
                raise ValueError("once")
            handled.append(message.topic)

        @worker.handler("hopeless")
        def fail(message: OutboxMessage) -> None:
            raise ValueError(f"{message.topic} always")

        with pysqlbox.connect(chained.urls["operator"], schema=chained.owner.schema) as operator:

            def is_over() -> bool:
                """Everything handled, one dead, and what is done cleaned up."""
                total = operator.outbox.stats()[-1]
                return set(handled) >= {"lost", "step", "after", "flaky"} and (
                    total.dead == 1 and total.done == total.ready == total.in_flight == 0
                )

            worker.start()
            try:
                until = time.monotonic() + 120
                while not is_over():
                    assert time.monotonic() < until, (handled, operator.outbox.stats()[-1])
                    time.sleep(0.1)
            finally:
                worker.stop()
            assert [each.cause for each in operator.outbox.dead_causes()] == ["ValueError: hopeless always"]
        samples = read(str(metrics.WorkerExporter(worker)))
        assert value(samples, "pysqlbox_up") == 1
        assert value(samples, "pysqlbox_dead_messages", box="outbox", topic="hopeless") == 1
        assert value(samples, "pysqlbox_upkeep_age_seconds", box="outbox") < 60
        assert db.outbox.reap() == 0
        assert db.outbox.cleanup(0) == 0
        assert db.outbox.cleanup_dead(0) == 1
        assert db.ledger.cleanup(0) >= 0
        assert db.outbox.next_due() is None
        assert db.schema_version() > 0


def test_a_producers_metrics_are_its_own_and_its_database_is_not_called_away(
    chained: Logins, caplog: pytest.LogCaptureFixture
) -> None:
    """Being denied the figures is an answer of the database's: no alert says that it is down."""
    with pysqlbox.connect(chained.urls["producer"], schema=chained.owner.schema) as db:
        told = metrics.Exporter(db)
        db.outbox.enqueue("t", "p")
        for _ in range(2):
            samples = read(str(told))
            assert value(samples, "pysqlbox_up") == 1
            assert value(samples, "pysqlbox_client_sent_messages_total", topic="t") == 1
            assert "pysqlbox_ready_messages" not in {each.name for each in samples}
    assert len([record for record in caplog.records if "no figures" in record.getMessage()]) == 1
