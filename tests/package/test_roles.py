"""The package as a role that may execute its routines and nothing else."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest

import pysqlbox
from pysqlbox import AccessDenied, Deployment, NotFound, OutboxMessage, Retried
from pysqlbox.deploy.migrate import migrate, status
from pysqlbox.drivers import Target, parse_url
from pysqlbox.worker import fixed
from tests.support.boxes import BOXES
from tests.support.engines import Engine

OWNER = UUID("11111111-1111-4111-8111-111111111111")
PAST = datetime(2026, 3, 1, tzinfo=UTC)
pytestmark = pytest.mark.dialect("postgres")


def _target(url: str, user: str, password: str) -> Target:
    target = parse_url(url)
    dsn = psycopg.conninfo.make_conninfo(target.dsn, user=user, password=password)
    return replace(target, dsn=dsn, secrets=(password,))


@pytest.fixture
def roles(engine: Engine, empty_url: str) -> Iterator[dict[str, Deployment]]:
    """A box for a login of each role."""
    schema = f"r{secrets.token_hex(4)}"
    migrate(empty_url, schema=schema, boxes=BOXES, roles=True)
    boxes: dict[str, Deployment] = {}
    names = ("producer", "worker", "operator", "viewer")
    for name in names:
        password = secrets.token_hex(8)
        engine.execute(
            f"CREATE ROLE {schema}_{name}_login LOGIN PASSWORD '{password}' IN ROLE {schema}_{name}"
        )
        boxes[name] = pysqlbox.connect(_target(empty_url, f"{schema}_{name}_login", password), schema=schema)
    try:
        yield boxes
    finally:
        for db in boxes.values():
            db.close()
        with psycopg.connect(parse_url(empty_url).dsn, autocommit=True) as connection:
            for name in names:
                connection.execute(f"DROP ROLE {schema}_{name}_login".encode())
        drop_roles(empty_url, schema)


def drop_roles(url: str, schema: str) -> None:
    """Roles belong to the whole server."""
    with psycopg.connect(parse_url(url).dsn, autocommit=True) as connection:
        for name in ("producer", "worker", "operator", "viewer"):
            connection.execute(f"DROP OWNED BY {schema}_{name}".encode())
            connection.execute(f"DROP ROLE {schema}_{name}".encode())


def test_roles_that_are_asked_for_later_change_nothing_by_hand(empty_url: str) -> None:
    """What somebody really changed meanwhile is made anew; the next deployment finds nothing to do."""
    schema = f"r{secrets.token_hex(4)}"
    migrate(empty_url, schema=schema)
    with psycopg.connect(parse_url(empty_url).dsn, autocommit=True) as connection:
        connection.execute(f"ALTER FUNCTION {schema}.outbox_stats() COST 7".encode())
    try:
        assert "queue/stats@outbox" in migrate(empty_url, schema=schema, roles=True).routines
        found = status(empty_url, schema=schema)
        assert (found.drifted, found.changes) == ([], False)
    finally:
        drop_roles(empty_url, schema)


def test_a_workers_role_suffices_to_give_up(roles: dict[str, Deployment]) -> None:
    """It may not read the settings, and need not: by the box's own limit, or one that its worker has."""
    producer, operator = roles["producer"], roles["operator"]
    operator.outbox.configure("max_attempts", "2")
    made = producer.outbox.enqueue("t", "p")
    with pytest.raises(AccessDenied):
        producer.outbox.retry(OWNER, [made.id])
    worker = roles["worker"].worker(
        boxes=("outbox",),
        threads=1,
        poll_seconds=0.05,
        backoff=fixed(0.001),
        reap_seconds=None,
        cleanup_seconds=None,
    )

    @worker.handler("t")
    def fail(message: OutboxMessage) -> None:
        raise ValueError(f"attempt {message.attempt}")

    until = time.monotonic() + 60
    while operator.outbox.get(made.id).status != "Failed":
        assert time.monotonic() < until, "it never gives up"
        worker.drain()
    found = operator.outbox.get(made.id)
    assert (found.attempt, found.last_error) == (2, "ValueError: attempt 1")
    claimed = producer.outbox.enqueue("other", "p")
    assert [each.id for each in roles["worker"].outbox.claim(OWNER)] == [claimed.id]
    assert roles["worker"].outbox.retry(OWNER, [claimed.id], max_attempts=1) == Retried(1, 1)


def test_each_role_can_do_its_part_and_no_more(roles: dict[str, Deployment]) -> None:
    producer, worker, operator = roles["producer"], roles["worker"], roles["operator"]
    done = producer.outbox.enqueue("t", "p")
    assert producer.box("mail").kind == "outbox"
    assert producer.box("orders").kind == "inbox"
    with pytest.raises(NotFound):
        producer.box("nobody")
    assert not producer.inbox.already_processed("1", "s")
    join_id = producer.joins.start("tenant", 1)
    assert producer.joins.attach(join_id, done.message_id)
    with pytest.raises(AccessDenied):
        producer.outbox.claim(OWNER)
    assert [each.id for each in worker.outbox.claim(OWNER)] == [done.id]
    worker.outbox.enqueue("t", "from a handler")
    assert worker.outbox.ack(OWNER, [done.id]) == 1
    assert worker.ledger.try_begin("k").acquired
    assert worker.outbox.reap() == 0
    assert worker.outbox.stats()[-1].done == 1  # to tell whether messages wait while nothing moves
    with pytest.raises(AccessDenied):
        worker.outbox.list("Ready")
    assert operator.outbox.stats()[-1].done == 1
    assert operator.outbox.get(done.id).status == "Done"
    assert [each.join_id for each in operator.joins.list()] == [join_id]
    made = operator.schedules.set("s", "t", "p", cron="* * * * *")
    operator.schedules.set("past", "t", "p", every=60, next_at=PAST)
    for one in (producer, worker):
        with pytest.raises(AccessDenied):
            one.schedules.set("s", "t", "p", every=60)
        with pytest.raises(AccessDenied):
            one.schedules.remove("s")
        with pytest.raises(AccessDenied):
            one.schedules.list()
    with pytest.raises(AccessDenied):
        producer.outbox.schedule_fire("past", PAST)
    assert [each.name for each in worker.outbox.schedule_due()] == ["past"]
    assert worker.outbox.schedule_next().next_at == made.next_at
    assert worker.outbox.schedule_fire("past", PAST)
    assert operator.outbox.pause() == 1
