"""Transactional handlers: what they write, what they send and the message's end happen together or not."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pysqlbox
from pysqlbox import DeadLetter, Release, Retry
from pysqlbox.worker import Context, fixed
from tests.package.support import django_alias, sqlalchemy_engine
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.processes import Journal, processes
from tests.worker.support import OWNER, Calls, comes, put, put_many, status, until
from tests.worker.test_leases import lose

Box = pysqlbox.Outbox | pysqlbox.Inbox


#: The server has everything of a transaction by then, and has not committed it yet.
SLOW_COMMIT = """
    CREATE FUNCTION {schema}.hang() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting('pysqlbox_test.hang', true) = 'on' THEN
            PERFORM pg_sleep(1);
        END IF;
        RETURN NULL;
    END;
    $$;
    CREATE CONSTRAINT TRIGGER tr_effects_hang AFTER INSERT ON {schema}.effects
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.hang();
"""


def write(db: Database, connection: Any, identity: int) -> None:
    """A handler's own statement."""
    schema = f'"{db.schema}"' if db.dialect == "postgres" else f"[{db.schema}]"
    connection.execute(f"INSERT INTO {schema}.effects (message) VALUES ({identity})")


@pytest.mark.every_engine
def test_effects_sends_and_the_end_come_in_one_commit(
    db: Database, box: Box, deployment: pysqlbox.Deployment, make: MakeWorker, effects: Any
) -> None:
    worker = make(boxes=[box.name], threads=1)  # one connection of the test's own is read by the handler
    seen: list[tuple[str, int]] = []

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Context) -> None:
        write(db, context.connection, message.id)
        deployment.box("mail").enqueue("sent", str(message.id), connection=context.connection)  # type: ignore[call-arg]  # it is an outbox
        seen.append((status(box, message.id), len(effects())))

    made = put_many(box, 5)
    assert worker.drain() == 5
    assert effects() == made
    assert {status(box, message) for message in made} == {"Done"}
    assert {state for state, _ in seen} == {"InProgress"}, "nothing shows before the commit"
    assert seen[0][1] == 0
    sent = deployment.box("mail").claim(OWNER)
    assert sorted(int(message.payload) for message in sent) == made
    assert worker.stats().acked == 5


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Retry(delay=60), ("Ready", 1)), (Release(delay=60), ("Ready", 0)), (DeadLetter("d"), ("Failed", 0)),
        (ValueError("no"), ("Ready", 1)), (pysqlbox.NonRetryable("no"), ("Failed", 0)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_only_an_ack_commits(
    db: Database, box: Box, make: MakeWorker, effects: Any, answer: Any, expected: tuple[str, int]
) -> None:
    worker = make(boxes=[box.name], backoff=fixed(60))

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Context) -> Any:
        write(db, context.connection, message.id)
        if isinstance(answer, Exception):
            raise answer
        return answer

    message = put(box)
    worker.drain()
    assert effects() == []
    assert (status(box, message), box.get(message).attempt) == expected


@pytest.mark.every_engine
def test_a_lost_lease_rolls_back(
    db: Database,
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    effects: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = make(boxes=["outbox"], threads=1)

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Context) -> None:
        lose(db, deployment.outbox, [message.id])
        write(db, context.connection, message.id)

    message = put(deployment.outbox)
    worker.start()
    until(lambda: "this worker has lost the lease of 1 of 1 message" in caplog.text, 40)
    worker.stop()
    assert effects() == []
    stored = deployment.outbox.get(message)
    assert stored.owner_token == OWNER
    assert worker.stats().handled == 0, "its answer counts for nothing"


@pytest.mark.dialect("postgres")
def test_a_commit_that_fails_leaves_the_message_undone(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, effects: Any
) -> None:
    constraint = "CONSTRAINT uq_effects UNIQUE (message) DEFERRABLE INITIALLY DEFERRED"
    db.sql(f"ALTER TABLE {{schema}}.effects ADD {constraint}")
    worker = make(boxes=["outbox"], backoff=fixed(60))

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Context) -> None:
        write(db, context.connection, message.id)
        write(db, context.connection, message.id)

    message = put(deployment.outbox)
    worker.drain()
    assert effects() == []
    assert (status(deployment.outbox, message), deployment.outbox.get(message).attempt) == ("Ready", 1)


@pytest.mark.dialect("postgres")
def test_a_division_by_zero_in_the_commit_is_no_lost_lease(
    db: Database,
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    effects: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By one of its own the server tells that a lease is lost; this is the application's fault."""
    db.sql(
        """
        CREATE FUNCTION {schema}.divide() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RETURN 1 / (NEW.message - NEW.message);
        END;
        $$;
        CREATE CONSTRAINT TRIGGER tr_effects_divide AFTER INSERT ON {schema}.effects
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.divide();
        """
    )
    worker = make(boxes=["outbox"], backoff=fixed(60))

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Context) -> None:
        write(db, context.connection, message.id)

    message = put(deployment.outbox)
    worker.drain()
    assert effects() == []
    assert (status(deployment.outbox, message), deployment.outbox.get(message).attempt) == ("Ready", 1)
    assert "division by zero" in caplog.text
    assert "lost the lease" not in caplog.text


@pytest.mark.dialect("postgres")
def test_a_handler_cannot_end_its_transaction_nor_leave_it_in_a_pipeline(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, effects: Any
) -> None:
    worker = make(boxes=["outbox"], threads=1, backoff=fixed(60))
    pipelines: list[Any] = []

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Context) -> None:
        write(db, context.connection, message.id)
        if message.payload == "pipeline":
            pipelines.append(context.connection.pipeline())
            pipelines[0].__enter__()
        elif message.payload:
            getattr(context.connection, message.payload)()

    hostile = [put(deployment.outbox, payload=payload) for payload in ("commit", "rollback", "pipeline")]
    good = put(deployment.outbox, payload="")
    worker.drain()
    assert effects() == [good]
    errors = [deployment.outbox.get(message).last_error or "" for message in hostile]
    assert ["not for the handler" in error for error in errors] == [True, True, False]
    assert "pipeline" in errors[2]
    assert status(deployment.outbox, good) == "Done"


@pytest.mark.every_engine
def test_a_handler_that_overran_its_time_commits_nothing(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, effects: Any
) -> None:
    go = threading.Event()
    worker = make(boxes=["outbox"], backoff=fixed(3600))

    def handle(message: Any, context: Context) -> None:
        write(db, context.connection, message.id)
        comes(go, 20)

    worker.add_handler("t", handle, transactional=True, timeout=0.3)
    message = put(deployment.outbox)
    worker.start()
    until(lambda: deployment.outbox.get(message).attempt == 1)
    go.set()
    assert worker.stop(10)
    assert effects() == []
    assert status(deployment.outbox, message) == "Ready"


@pytest.mark.every_engine
def test_batches_commit_whole_or_not_at_all(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, effects: Any
) -> None:
    """One that is not done undoes what was done for the others; they come again and count no attempt."""
    worker = make(boxes=["outbox"], threads=1, backoff=fixed(3600))

    @worker.batch_handler("t", transactional=True)
    def handle(messages: list[Any], context: Context) -> list[Any]:
        for message in messages:
            write(db, context.connection, message.id)
        return [Retry() if message.payload == "bad" else None for message in messages]

    made = [put(deployment.outbox) for _ in range(3)]
    bad = put(deployment.outbox, payload="bad")
    worker.drain()
    assert effects() == made
    assert [deployment.outbox.get(message).attempt for message in [*made, bad]] == [0, 0, 0, 1]
    assert {status(deployment.outbox, message) for message in made} == {"Done"}


@pytest.mark.every_engine
def test_a_group_goes_on_behind_a_commit(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, effects: Any, calls: Calls
) -> None:
    worker = make(boxes=["outbox"], threads=3, poll_seconds=30, listen=False)

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Context) -> None:
        call = calls.begin(message)
        write(db, context.connection, message.id)
        calls.end(call)

    made = put_many(deployment.outbox, 12, group_id="g")
    worker.start()
    until(lambda: worker.stats().acked == 12)
    worker.stop()
    assert effects() == made
    assert calls.ids == made
    assert calls.most == 1


@pytest.mark.dialect("postgres")
def test_a_callable_brings_the_applications_own_transaction(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, effects: Any
) -> None:
    """A SQLAlchemy session's, for one."""
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    orm = pytest.importorskip("sqlalchemy.orm", reason="sqlalchemy is not installed")
    engine = sqlalchemy_engine(db)
    session_type = orm.sessionmaker(engine)
    worker = make(boxes=["outbox"], backoff=fixed(3600))

    @worker.handler("t", transactional=session_type.begin)
    def handle(message: Any, context: Context) -> Any:
        statement = sqlalchemy.text(f'INSERT INTO "{db.schema}".effects (message) VALUES (:id)')
        context.connection.execute(statement, {"id": message.id})
        return Retry() if message.payload == "bad" else None

    good, bad = put(deployment.outbox), put(deployment.outbox, payload="bad")
    worker.drain()
    engine.dispose()
    assert effects() == [good]
    assert (status(deployment.outbox, good), status(deployment.outbox, bad)) == ("Done", "Ready")


@pytest.mark.dialect("postgres")
def test_a_context_manager_that_swallows_what_it_rolls_back_for_hides_nothing(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, effects: Any
) -> None:
    """Else a batch's messages would be done whose effects were undone for another one's sake."""
    worker = make(boxes=["outbox"], backoff=fixed(3600))

    @contextlib.contextmanager
    def swallowing() -> Iterator[Any]:
        with deployment.connection() as raw, contextlib.suppress(Exception), raw.transaction():
            yield raw

    calls: list[int] = []

    @worker.batch_handler("t", transactional=swallowing)
    def handle(messages: list[Any], context: Context) -> Any:
        calls.append(len(messages))
        for message in messages:
            write(db, context.connection, message.id)
        if len(calls) > 1:
            return Release(delay=60)
        return [Retry() if message.payload == "2" else None for message in messages]

    @worker.handler("raises", transactional=swallowing)
    def fail(message: Any, context: Context) -> None:
        write(db, context.connection, message.id)
        raise ValueError("what went wrong")

    made = put_many(deployment.outbox, 3)
    failed = put(deployment.outbox, "raises")
    worker.drain()
    assert calls == [3, 2]
    assert effects() == []
    assert {status(deployment.outbox, message) for message in [*made, failed]} == {"Ready"}
    assert [deployment.outbox.get(message).attempt for message in made] == [0, 0, 1]
    stored = deployment.outbox.get(failed)
    assert (stored.attempt, stored.last_error) == (1, "ValueError: what went wrong")


@pytest.mark.dialect("postgres")
def test_djangos_atomic_is_one_of_them(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, effects: Any
) -> None:
    pytest.importorskip("django", reason="django is not installed")
    from pysqlbox.contrib.django import atomic

    with django_alias(db) as alias:
        worker = make(boxes=["outbox"], threads=2, backoff=fixed(3600))

        @worker.handler("t", transactional=lambda: atomic(alias))
        def handle(message: Any, context: Context) -> Any:
            with context.connection.cursor() as cursor:
                cursor.execute(f'INSERT INTO "{db.schema}".effects (message) VALUES (%s)', [message.id])
            return Retry() if message.payload == "bad" else None

        good, bad = put(deployment.outbox), put(deployment.outbox, payload="bad")
        worker.drain()
    assert effects() == [good]
    assert (status(deployment.outbox, good), status(deployment.outbox, bad)) == ("Done", "Ready")


def test_a_handler_that_is_not_transactional_has_no_connection(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    worker = make(boxes=["outbox"], backoff=fixed(3600))
    worker.add_handler("t", lambda _message, context: context.connection)
    message = put(deployment.outbox)
    worker.drain()
    assert "not transactional" in (deployment.outbox.get(message).last_error or "")


def test_what_cannot_be_transactional_is_refused(make: MakeWorker) -> None:
    async def coroutine(_message: Any) -> None:
        pass

    with pytest.raises(pysqlbox.InvalidArgument, match="transactional"):
        make().add_handler("t", coroutine, transactional=True)
    with pytest.raises(pysqlbox.InvalidArgument, match="transactional"):
        make().add_handler("t", lambda _message: None, transactional="yes")  # type: ignore[arg-type]


@pytest.mark.every_engine
@pytest.mark.parametrize("moment", ["begun", "written", "sent", "in the commit", "committed"])
def test_kill_at_any_moment_shows_effect_and_end_or_neither(
    db: Database, deployment: pysqlbox.Deployment, effects: Any, tmp_path: Path, moment: str
) -> None:
    """With kill -9, after each statement of a handler, until all is done by another process."""
    journal = Journal(tmp_path / "journal")
    if moment == "in the commit" and db.dialect == "postgres":
        db.sql(SLOW_COMMIT)
    made = put_many(deployment.outbox, 12)
    module = "tests.worker.transactional_program"
    lease = 1 if db.dialect == "postgres" else 6
    with processes(db, journal, module=module) as start:
        for turn in range(2):
            victim = start(lease_seconds=lease, threads=2, moment=moment, every=4)
            until(lambda turn=turn: len(journal.of("hang")) > turn)  # type: ignore[misc]  # a loop's lambda
            time.sleep(0.1)
            victim.kill()
            check(db, deployment, effects)
        last = start(lease_seconds=lease, threads=2, moment="never", every=1)
        until(lambda: {status(deployment.outbox, message) for message in made} == {"Done"}, 40)
        last.stop()
    assert effects() == made, "each exactly once"
    sent = [int(message.payload) for message in deployment.box("mail").claim(OWNER, batch_size=100)]
    assert sorted(sent) == made
    check(db, deployment, effects)


def check(db: Database, deployment: pysqlbox.Deployment, effects: Any) -> None:
    """What is done has had its effect, and the other way round."""
    rows = db.sql("SELECT id FROM {schema}.outbox_messages WHERE status = 'Done'")
    assert sorted(int(str(row["id"])) for row in rows) == effects()
    del deployment
