"""Handlers of a broker's consumers run once per key."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import pysqlbox.deployment
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, PysqlboxError
from pysqlbox.idempotent import Busy, Idempotent
from tests.support.database import Database

SECRET = "s3cr3t-pa55word"


@dataclass
class Delivery:
    """What a broker hands over."""

    message_id: str
    body: str = SECRET


@pytest.fixture
def deployment(db: Database) -> Iterator[pysqlbox.Deployment]:
    """The deployment of the test."""
    with pysqlbox.deployment.connect(db.url, schema=db.schema) as found:
        yield found


@pytest.fixture
def once(deployment: pysqlbox.Deployment) -> Idempotent:
    """The lease style, whose failed handlers give their keys back."""
    return Idempotent(deployment, bus="rabbit", group="billing", lease=30, release_on_error=True)


@pytest.fixture
def marking(deployment: pysqlbox.Deployment) -> Idempotent:
    """Mark before handle."""
    return Idempotent(deployment, bus="rabbit", group="billing")


def test_a_duplicate_is_skipped(once: Idempotent, db: Database) -> None:
    calls: list[str] = []

    @once("order.created")
    def handle(delivery: Delivery) -> str:
        calls.append(delivery.message_id)
        return "handled"

    assert handle(Delivery("1")) == "handled"
    assert handle(Delivery("1")) is None
    assert handle(delivery=Delivery("2")) == "handled"
    assert calls == ["1", "2"]
    key = once.key("order.created", "1")
    assert key == "rabbit:billing:order.created:1"
    entry = db.one("ledger_get", key=key)
    assert (entry["status"], entry["attempts"]) == ("Processed", 1)
    assert str(entry["handler"]).endswith("handle")


def test_other_aliases_groups_and_buses_are_other_keys(deployment: pysqlbox.Deployment) -> None:
    calls = []
    for bus, group, alias in (("a", "g", "x"), ("b", "g", "x"), ("a", "h", "x"), ("a", "g", "y")):
        rules = Idempotent(deployment, bus=bus, group=group)

        @rules(alias)
        def handle(delivery: Delivery) -> None:
            calls.append(delivery.message_id)

        for _ in range(2):
            handle(Delivery("1"))
    assert len(calls) == 4


def test_with_a_lease_a_failed_handler_is_tried_again(once: Idempotent, db: Database) -> None:
    """Nothing is marked on failure."""
    outcomes: list[Exception | None] = [ValueError("first"), None]

    @once("alias")
    def handle(_: Delivery) -> None:
        if (error := outcomes.pop(0)) is not None:
            raise error

    with pytest.raises(ValueError, match="first"):
        handle(Delivery("1"))
    entry = db.one("ledger_get", key=once.key("alias", "1"))
    assert (entry["status"], entry["attempts"]) == ("Unknown", 1)
    handle(Delivery("1"))
    assert db.one("ledger_get", key=once.key("alias", "1"))["attempts"] == 2
    assert outcomes == []


def test_with_a_lease_the_claim_may_be_kept_until_it_ends(
    deployment: pysqlbox.Deployment, db: Database
) -> None:
    once = Idempotent(deployment, bus="b", group="g", lease=timedelta(seconds=30))
    key = once.key("alias", "1")
    with pytest.raises(ValueError, match="failed"), once.attempt(key):
        raise ValueError("failed")
    with pytest.raises(Busy), once.attempt(key):
        pytest.fail("somebody holds it")
    db.advance(31)
    with once.attempt(key) as mine:
        assert mine.status == "Acquired"


def test_marked_before_a_failed_handler_is_not_tried_again(marking: Idempotent, db: Database) -> None:
    calls = []

    @marking("alias")
    def handle(delivery: Delivery) -> None:
        calls.append(delivery)
        raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        handle(Delivery("1"))
    db.advance(10**6)
    assert handle(Delivery("1")) is None
    assert len(calls) == 1
    entry = db.one("ledger_get", key=marking.key("alias", "1"))
    assert (entry["status"], entry["lease_until"]) == ("Acquired", None)


def test_marked_before_a_failed_handler_may_release_its_claim(deployment: pysqlbox.Deployment) -> None:
    marking = Idempotent(deployment, bus="b", group="g", release_on_error=True)
    tries = iter([True, False])

    @marking("alias")
    def handle(_: Delivery) -> str:
        if next(tries):
            raise ValueError("failed")
        return "handled"

    with pytest.raises(ValueError, match="failed"):
        handle(Delivery("1"))
    assert handle(Delivery("1")) == "handled"


def test_what_is_not_enabled_asks_no_ledger(deployment: pysqlbox.Deployment, db: Database) -> None:
    once = Idempotent(deployment, bus="b", group="g", enabled=False)
    calls = []

    @once("alias")
    def handle(delivery: Delivery) -> None:
        calls.append(delivery.message_id)
        if len(calls) == 3:
            raise ValueError("the third")

    @once("alias")
    async def handle_async(delivery: Delivery) -> None:
        calls.append(delivery.message_id)

    for _ in range(2):
        handle(Delivery("1"))
    with pytest.raises(ValueError, match="the third"):
        handle(Delivery("1"))
    asyncio.run(handle_async(Delivery("1")))
    assert calls == ["1"] * 4
    with once.attempt(once.key("alias", "1")) as mine:
        assert mine
        assert mine.status is None
    assert not mine.lost
    assert db.one("ledger_get", key=once.key("alias", "1"))["attempts"] == 0


def test_busy_raises_or_is_skipped(
    deployment: pysqlbox.Deployment, once: Idempotent, marking: Idempotent
) -> None:
    key = once.key("alias", "1")
    with once.attempt(key) as mine:
        assert mine
        with pytest.raises(Busy) as raised, once.attempt(key):
            pytest.fail("somebody holds it")
        assert raised.value.expires_at is not None
        assert raised.value.key == key
        assert isinstance(raised.value, PysqlboxError)
        skipping = Idempotent(deployment, bus="b", group="g", on_busy="skip")
        with skipping.attempt(key) as theirs, marking.attempt(key) as others:
            assert not theirs
            assert not others
            assert theirs.status == others.status == "Busy"
    with once.attempt(key) as late:
        assert not late
        assert late.status == "Processed"


@pytest.mark.parametrize("lease", [30, None])
def test_of_concurrent_consumers_exactly_one_handles(
    deployment: pysqlbox.Deployment, lease: int | None
) -> None:
    rules = Idempotent(deployment, bus="b", group="g", lease=lease, on_busy="skip")
    calls = []
    start = threading.Barrier(6)

    @rules("alias")
    def handle(delivery: Delivery) -> None:
        calls.append(delivery.message_id)

    def consume(_: int) -> None:
        start.wait()
        for number in range(10):
            handle(Delivery(str(number)))

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(consume, range(6)))
    assert sorted(calls) == sorted(str(number) for number in range(10))


def test_a_lost_lease_is_told(once: Idempotent, db: Database, caplog: pytest.LogCaptureFixture) -> None:
    key = once.key("alias", "1")
    with once.attempt(key) as slow:
        db.advance(31)
        with once.attempt(key) as quick:
            assert quick
    assert slow.lost
    assert not quick.lost
    assert "somebody else took it" in caplog.text


def test_in_the_callers_transaction_the_mark_commits_with_the_work(
    deployment: pysqlbox.Deployment, once: Idempotent
) -> None:
    """A rollback takes back both, and a commit keeps both."""
    key = once.key("alias", "1")

    @once("alias", connection="connection")
    def handle(delivery: Delivery, connection: Any) -> None:
        deployment.outbox.enqueue("work", delivery.message_id, connection=connection)

    def work(fail: bool) -> None:
        with deployment.transaction() as connection:
            handle(Delivery("1"), connection)
            handle(Delivery("1"), connection=connection)
            if fail:
                raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        work(fail=True)
    assert not once.is_processed(key)
    assert deployment.ledger.get(key).status == "Unknown"
    assert deployment.outbox.stats()[-1].ready == 0
    work(fail=False)
    assert once.is_processed(key)
    assert deployment.outbox.stats()[-1].ready == 1


def test_in_the_callers_transaction_a_failed_handler_leaves_everything_to_the_rollback(
    deployment: pysqlbox.Deployment, once: Idempotent
) -> None:
    """Its transaction may be broken, so nothing is sent through it."""
    key = once.key("alias", "1")
    with (
        pytest.raises(InvalidArgument),
        deployment.transaction() as connection,
        once.attempt(key, connection=connection),
    ):
        deployment.outbox.enqueue("", "", connection=connection)
    assert deployment.ledger.get(key).status == "Unknown"


def test_the_connection_may_be_found_in_the_arguments(
    deployment: pysqlbox.Deployment, once: Idempotent
) -> None:
    @once("alias", message_id=lambda _, number: number, connection=lambda session, _: session["connection"])
    def handle(_: dict[str, Any], number: int) -> int:
        return number

    with deployment.transaction() as connection:
        assert handle({"connection": connection}, 5) == 5
        assert not once.is_processed(once.key("alias", 5))
    assert once.is_processed(once.key("alias", 5))
    with pytest.raises(InvalidArgument, match="has no parameter 'session'"):
        once("alias", connection="session")(lambda delivery: None)  # noqa: ARG005  # it is never called


def test_async_handlers(once: Idempotent) -> None:
    calls = []

    @once("alias")
    async def handle(delivery: Delivery) -> str:
        await asyncio.sleep(0)
        calls.append(delivery.message_id)
        if delivery.message_id == "bad":
            raise ValueError("failed")
        return "handled"

    async def main() -> None:
        assert inspect.iscoroutinefunction(handle)
        assert await handle(Delivery("1")) == "handled"
        assert await handle(Delivery("1")) is None
        with pytest.raises(ValueError, match="failed"):
            await handle(Delivery("bad"))
        async with once.attempt(once.key("alias", "bad")) as mine:
            assert mine
            with pytest.raises(Busy):
                await handle(Delivery("bad"))

    asyncio.run(main())
    assert calls == ["1", "bad"]
    assert once.is_processed(once.key("alias", "bad"))


class Later:
    """A consumer whose calls are awaited."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def __call__(self, delivery: Delivery) -> str:
        await asyncio.sleep(0)
        if delivery.message_id == "bad":
            raise ValueError("failed")
        self.calls.append(delivery.message_id)
        return "handled"


@pytest.mark.parametrize("wrap", [lambda later: later, functools.partial])
def test_what_is_called_and_awaited_is_processed_when_it_has_ended(once: Idempotent, wrap: Any) -> None:
    """And not as soon as it was called."""
    later = Later()
    handle = once("alias")(wrap(later))

    async def main() -> None:
        with pytest.raises(ValueError, match="failed"):
            await handle(Delivery("bad"))
        assert await handle(Delivery("1")) == "handled"
        assert await handle(Delivery("1")) is None

    asyncio.run(main())
    assert later.calls == ["1"]
    assert [once.is_processed(once.key("alias", each)) for each in ("1", "bad")] == [True, False]


def test_a_coroutine_that_a_wrapper_hides_is_refused_and_not_processed(once: Idempotent) -> None:
    later = Later()

    @once("alias")
    def handle(delivery: Delivery) -> Any:
        return later(delivery)

    with pytest.raises(InvalidArgument, match="answers a coroutine"):
        handle(Delivery("1"))
    assert not once.is_processed(once.key("alias", "1"))
    assert later.calls == []


def test_a_cancelled_async_handler_releases(once: Idempotent, deployment: pysqlbox.Deployment) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        @once("alias")
        async def handle(delivery: Delivery) -> None:
            assert delivery
            begun.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(handle(Delivery("1")))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        task = asyncio.create_task(handle(Delivery("2")))
        await asyncio.sleep(0)
        task.cancel()  # while it asks the ledger
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    for number in "12":
        assert deployment.ledger.get(once.key("alias", number)).status == "Unknown"


def test_who_is_cancelled_while_the_ledger_fails_is_cancelled(
    once: Idempotent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault must not swallow the cancellation: whoever stops a consumer waits for that."""
    asked, answer = threading.Event(), threading.Event()

    def fails(**_arguments: Any) -> None:
        asked.set()
        assert answer.wait(20)
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(once.ledger, "try_begin", fails)

    async def main() -> None:
        attempt = once.attempt("k")
        task = asyncio.create_task(attempt.__aenter__())
        assert await asyncio.to_thread(asked.wait, 20)
        task.cancel()
        answer.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not attempt

    asyncio.run(main())


@pytest.mark.dialect("postgres")
def test_an_async_connection_carries_the_mark(deployment: pysqlbox.Deployment, once: Idempotent) -> None:
    import psycopg

    key = once.key("alias", "1")

    async def main() -> None:
        async with (
            pysqlbox.connect_async(deployment.target, schema=deployment.schema) as db,
            await psycopg.AsyncConnection.connect(deployment.target.dsn) as connection,
        ):
            awaited = Idempotent(db, bus="rabbit", group="billing", lease=30)
            async with awaited.attempt(key, connection=connection) as mine:
                assert mine
            await connection.rollback()
            assert not once.is_processed(key)
            with pytest.raises(ValueError, match="failed"):
                async with awaited.attempt(key, connection=connection):
                    raise ValueError("failed")
            await connection.rollback()
            async with awaited.attempt(key, connection=connection) as mine:
                assert mine
            await connection.commit()
            assert once.is_processed(key)
            async with awaited.attempt(key, connection=connection) as late:
                assert not late

    asyncio.run(main())


def test_an_asynchronous_deployment_serves_coroutine_functions(deployment: pysqlbox.Deployment) -> None:
    handled: list[str] = []

    async def main() -> None:
        async with pysqlbox.connect_async(deployment.target, schema=deployment.schema) as db:
            once = Idempotent(db, bus="b", group="g", lease=60, release_on_error=True)

            @once("alias", message_id=lambda message: message)
            async def handle(message: str) -> None:
                handled.append(message)
                if message == "bad":
                    raise ValueError("failed")

            await handle("1")
            await handle("1")
            for _ in range(2):
                with pytest.raises(ValueError, match="failed"):
                    await handle("bad")
            assert (await db.ledger.get(once.key("alias", "bad"))).status == "Unknown"
            with pytest.raises(InvalidArgument, match="coroutine"):
                once("alias")(lambda message: message)
            with pytest.raises(InvalidArgument, match="coroutine"), once.attempt("k"):
                raise AssertionError("begun")
            assert await once.is_processed(once.key("alias", "1"))
            assert not await once.is_processed(once.key("alias", "bad"))

    asyncio.run(main())
    assert handled == ["1", "bad", "bad"]


def test_an_asynchronous_deployment_answers_those_who_await(
    deployment: pysqlbox.Deployment, db: Database
) -> None:
    async def main() -> None:
        async with pysqlbox.connect_async(deployment.target, schema=deployment.schema) as awaited:
            once = Idempotent(awaited, bus="b", group="g", retention=timedelta(hours=1))
            keys = [once.key("alias", number) for number in range(5)]
            for key in keys:
                assert await once.mark_processed(key) is True
            assert await once.mark_processed(keys[0]) is False
            assert await once.cleanup() == 0
            db.advance(3601)
            assert await once.cleanup(batch_size=2) == 5
            assert not await once.is_processed(keys[0])
            async with awaited.transaction() as connection:
                assert await once.mark_processed(keys[0], connection=connection)
                assert await once.is_processed(keys[0], connection=connection)
                assert not await once.is_processed(keys[0])

    asyncio.run(main())


def test_is_processed_and_mark_processed_are_the_simple_stores_calls(once: Idempotent) -> None:
    key = once.key("alias", "1")
    assert not once.is_processed(key)
    with once.attempt(key):
        assert not once.is_processed(key)
    assert once.is_processed(key)
    other = once.key("alias", "2")
    assert once.mark_processed(other) is True
    assert once.mark_processed(other) is False
    assert once.is_processed(other)


def test_cleanup_forgets_keys_after_the_retention(
    once: Idempotent, marking: Idempotent, db: Database
) -> None:
    for number in range(5):
        once.mark_processed(once.key("alias", number))
    with pytest.raises(ValueError, match="failed"), marking.attempt(marking.key("kept", 1)):
        raise ValueError("failed")
    assert once.cleanup() == 0
    db.advance(timedelta(days=7, seconds=1).total_seconds())
    assert once.cleanup(batch_size=2) == 5
    assert not once.is_processed(once.key("alias", 1))
    with marking.attempt(marking.key("kept", 1)) as mine:
        assert not mine


def test_hostile_ids_are_kept_apart(once: Idempotent) -> None:
    for number in ("'; --", "%s", "a:b", "🐘" * 600, "🐘" * 601, "x", "X", "x ", "\\", "\n", "\x00"):
        key = once.key("alias", number)
        assert not once.is_processed(key)
        with once.attempt(key) as mine:
            assert mine
        assert once.is_processed(key)


def test_nothing_of_the_message_is_logged(once: Idempotent, caplog: pytest.LogCaptureFixture) -> None:
    @once("alias")
    def handle(delivery: Delivery) -> None:
        raise ValueError(delivery.body)

    with caplog.at_level(logging.DEBUG, "pysqlbox"):
        with pytest.raises(ValueError, match=SECRET):
            handle(Delivery("1"))
        with pytest.raises(InvalidArgument) as raised:
            handle({"body": SECRET})  # type: ignore[arg-type]  # what the test is about
    assert SECRET not in caplog.text
    assert SECRET not in str(raised.value)
    assert "releasing it" in caplog.text


def test_a_failed_release_does_not_hide_the_handlers_exception(
    once: Idempotent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> int:
        raise PysqlboxError("gone")

    monkeypatch.setattr(type(once.ledger), "release", broken)
    with pytest.raises(ValueError, match="failed"), once.attempt(once.key("alias", "1")):
        raise ValueError("failed")
    assert "not released: gone" in caplog.text
