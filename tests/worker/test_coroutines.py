"""Coroutine handlers: many at once on one loop, with everything that handlers on threads have."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import psycopg
import pytest

import pysqlbox
from pysqlbox import DeadLetter
from pysqlbox.worker import Context, fixed, lease_keeper
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, comes, connections, nothing, put, put_many, status, threads, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


class Gauge:
    """How many are inside at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def inside(self, seconds: float) -> None:
        """Stays for a while."""
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.now -= 1


@pytest.mark.every_engine
def test_many_run_at_once_whatever_the_threads(box: Box, make: MakeWorker) -> None:
    gauge = Gauge()
    worker = make(boxes=[box.name], threads=1, async_slots=60)

    @worker.handler("t")
    async def handle(_message: Any) -> None:
        await gauge.inside(0.4)

    made = put_many(box, 200)
    assert worker.drain() == 200
    assert {status(box, message) for message in made[::20]} == {"Done"}
    assert 40 <= gauge.most <= 60
    assert threads() == []


@pytest.mark.dialect("postgres")
def test_a_thousand_need_three_connections(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    gauge = Gauge()
    worker = make(boxes=["outbox"], threads=2, async_slots=1000)

    @worker.handler("t")
    async def handle(_message: Any) -> None:
        await gauge.inside(2.0)

    put_many(deployment.outbox, 1000)
    before = connections(db)
    worker.start()
    until(lambda: gauge.now == 1000, 20)
    assert connections(db) - before <= 3
    until(lambda: worker.stats().acked == 1000, 20)
    worker.stop()


def test_a_lock_between_handlers_and_a_shared_connection(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """They are on one loop, so what belongs to a loop may be shared."""
    if db.dialect != "postgres":
        pytest.skip("psycopg's asynchronous connection is PostgreSQL's")
    worker = make(boxes=["outbox"])
    shared: dict[str, Any] = {}
    found: list[int] = []

    @worker.on_start
    async def connect() -> None:
        shared["lock"] = asyncio.Lock()
        shared["connection"] = await psycopg.AsyncConnection.connect(db.url, autocommit=True)

    @worker.on_stop
    async def disconnect() -> None:
        await shared["connection"].close()

    @worker.handler("t")
    async def handle(message: Any) -> None:
        async with shared["lock"]:
            cursor = await shared["connection"].execute("SELECT %s::int", (message.payload,))
            found.append((await cursor.fetchone())[0])

    put_many(deployment.outbox, 50)
    assert worker.drain() == 50
    assert sorted(found) == list(range(50))


def test_concurrency_counts_coroutines(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    limited, free = Gauge(), Gauge()
    worker = make(boxes=["outbox"], poll_seconds=30, listen=False)

    async def slow(_message: Any) -> None:
        await limited.inside(0.05)

    async def other(_message: Any) -> None:
        await free.inside(0.05)

    worker.add_handler("limited", slow, concurrency=2)
    worker.add_handler("free", other)
    put_many(deployment.outbox, 20, "limited")
    put_many(deployment.outbox, 20, "free")
    worker.start()
    until(lambda: worker.stats().acked == 40)
    worker.stop()
    assert limited.most == 2
    assert free.most > 2


def test_threads_and_coroutines_side_by_side_and_in_one_group(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """A group's order holds across both kinds."""
    seen: list[tuple[str | None, int]] = []
    names: set[str] = set()
    worker = make(boxes=["outbox"], threads=3)

    def on_thread(message: Any) -> None:
        names.add(threading.current_thread().name)
        assert threading.current_thread().name != "pysqlbox-loop"
        time.sleep(0.002)
        seen.append((message.group_id, message.id))

    async def on_loop(message: Any) -> None:
        names.add(threading.current_thread().name)
        assert threading.current_thread().name == "pysqlbox-loop"
        await asyncio.sleep(0.002)
        seen.append((message.group_id, message.id))

    worker.add_handler("thread", on_thread)
    worker.add_handler("loop", on_loop)
    made: dict[str | None, list[int]] = {"a": [], "b": [], None: []}
    for number in range(90):
        group = ("a", "b", None)[number % 3]
        topic = ("thread", "loop")[number // 2 % 2]
        made[group].append(put(deployment.outbox, topic, group_id=group))
    assert worker.drain() == 90
    for group in ("a", "b"):
        assert [i for g, i in seen if g == group] == made[group]
    assert sorted(i for _, i in seen) == sorted(i for ids in made.values() for i in ids)
    assert "pysqlbox-loop" in names
    assert len(names) > 1


@pytest.mark.every_engine
def test_a_coroutine_that_overruns_its_time_is_cancelled(box: Box, make: MakeWorker) -> None:
    ended: list[str] = []
    worker = make(boxes=[box.name], backoff=fixed(60))

    async def handle(_message: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    worker.add_handler("t", handle, timeout=0.3)
    message = put(box)
    worker.start()
    until(lambda: ended)
    until(lambda: box.get(message).attempt == 1)
    assert "0.3 seconds" in (box.get(message).last_error or "")
    assert worker.stop()
    assert worker.stats().retried == 1


def test_one_that_ignores_its_cancellation_keeps_its_place(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    calls = Calls()
    go = threading.Event()
    worker = make(boxes=["outbox"], backoff=fixed(0.01), max_attempts=0)

    async def handle(message: Any) -> None:
        call = calls.begin(message)
        while not go.is_set() and len(calls.all) == 1:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        calls.end(call)

    worker.add_handler("t", handle, timeout=0.2, concurrency=1)
    message = put(deployment.outbox)
    worker.start()
    until(lambda: deployment.outbox.get(message).attempt == 1)
    time.sleep(0.5)
    assert len(calls.all) == 1
    go.set()
    until(lambda: status(deployment.outbox, message) == "Done")
    worker.stop()
    assert calls.most == 1


def test_stop_lets_coroutines_finish_and_releases_the_rest(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    begun: list[int] = []
    ended: list[int] = []
    worker = make(boxes=["outbox"], async_slots=5)

    @worker.handler("t")
    async def handle(message: Any) -> None:
        begun.append(message.id)
        await asyncio.sleep(0.5)
        ended.append(message.id)

    made = put_many(deployment.outbox, 30)
    worker.start()
    until(lambda: len(begun) >= 5)
    assert worker.stop(10)
    assert begun == ended
    found = {message: status(deployment.outbox, message) for message in made}
    assert {m for m, state in found.items() if state == "Done"} == set(ended)
    assert set(found.values()) == {"Done", "Ready"}
    assert threads() == []


def test_stop_does_not_wait_longer_than_its_timeout(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    worker = make(boxes=["outbox"])
    begun = threading.Event()

    @worker.handler("t")
    async def handle(_message: Any) -> None:
        begun.set()
        await asyncio.sleep(60)

    message = put(deployment.outbox)
    worker.start()
    assert comes(begun)
    began = time.monotonic()
    assert not worker.stop(0.3)
    assert time.monotonic() - began < 30
    assert (status(deployment.outbox, message), deployment.outbox.get(message).attempt) == ("Ready", 0)
    until(lambda: not threads())


def test_stop_from_within_a_coroutine(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make(boxes=["outbox"])
    answers: list[bool] = []

    @worker.handler("t")
    async def handle(_message: Any) -> None:
        answers.append(worker.stop(5))
        await asyncio.sleep(0.1)

    message = put(deployment.outbox)
    worker.start()
    until(lambda: not threads())
    assert answers == [False]
    assert status(deployment.outbox, message) == "Done"


def test_async_with_runs_handlers_on_the_callers_loop(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    loops: list[Any] = []
    done: list[int] = []

    async def main() -> None:
        worker = make(boxes=["outbox"])
        event = asyncio.Event()

        @worker.handler("t")
        async def handle(message: Any, context: Context) -> None:
            loops.append(asyncio.get_running_loop())
            assert not await context.sleep(0.01)
            done.append(message.id)
            if len(done) == 20:
                event.set()  # what belongs to this loop

        worker.add_handler("thread", nothing)
        async with worker:
            assert worker.is_running
            made = await asyncio.to_thread(put_many, deployment.outbox, 20)
            other = await asyncio.to_thread(put, deployment.outbox, "thread")
            await asyncio.wait_for(event.wait(), 20)
            while await asyncio.to_thread(status, deployment.outbox, other) != "Done":
                await asyncio.sleep(0.02)
        assert loops == [asyncio.get_running_loop()] * 20
        assert sorted(done) == made

    asyncio.run(main())
    assert threads() == []


def test_run_async_ends_when_its_task_is_cancelled(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    async def main() -> None:
        worker = make(boxes=["outbox"])
        begun, ended = asyncio.Event(), list[int]()

        @worker.handler("t")
        async def handle(message: Any) -> None:
            begun.set()
            await asyncio.sleep(0.2)
            ended.append(message.id)

        message = await asyncio.to_thread(put, deployment.outbox)
        task = asyncio.create_task(worker.run_async())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [message]
        assert not worker.is_running

    asyncio.run(main())
    assert threads() == []


def test_run_async_ends_when_the_worker_is_stopped(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    async def main() -> None:
        worker = make(boxes=["outbox"])

        @worker.handler("t")
        async def handle(_message: Any) -> DeadLetter:
            worker.stop()
            return DeadLetter("the last")

        message = await asyncio.to_thread(put, deployment.outbox)
        await asyncio.wait_for(worker.run_async(), 20)
        assert deployment.outbox.get(message).last_error == "the last"

    asyncio.run(main())


def test_middleware_around_coroutines(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    seen: list[str] = []
    worker = make(boxes=["outbox"])

    @worker.middleware
    async def around(_message: Any, _context: Context, call_next: Any) -> Any:
        seen.append("before")
        answer = await call_next()
        seen.append("after")
        return answer

    @worker.handler("t")
    async def handle(_message: Any) -> None:
        await asyncio.sleep(0)
        seen.append("handler")

    put(deployment.outbox)
    assert worker.drain() == 1
    assert seen == ["before", "handler", "after"]


@pytest.mark.dialect("postgres")
def test_a_thousand_coroutines_need_three_connections(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two for claims, results and chores, and one that listens; where all goes well the keeper needs none."""
    monkeypatch.setattr(lease_keeper, "SETTLE_SECONDS", 3600.0)  # it would help out on a busy machine
    worker = make(
        boxes=["outbox"], async_slots=1000, lease_seconds=3600, reap_seconds=0.05, schedule_seconds=0.05
    )

    @worker.handler("t")
    async def handle(_message: Any) -> None:
        await asyncio.sleep(0.1)

    put_many(deployment.outbox, 3000)
    before = connections(db)
    most = 0
    worker.start()

    def done() -> bool:
        nonlocal most
        most = max(most, connections(db) - before)
        return worker.stats().acked == 3000

    until(done, 30)
    worker.stop()
    assert most == 3


def test_a_worker_ends_when_the_application_closes_its_loop(
    deployment: pysqlbox.Deployment, make: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """It never left the block: what its handlers have not finished is given back, for others to handle."""
    worker = make(boxes=["outbox"], threads=1, lease_seconds=60)
    begun: list[int] = []

    @worker.handler("t")
    async def handle(message: Any) -> None:
        begun.append(message.id)
        await asyncio.Event().wait()

    made = put_many(deployment.outbox, 3)
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        await worker.__aenter__()
        while len(begun) < 3:
            await asyncio.sleep(0.01)

    loop.run_until_complete(begin())
    tasks: set[Any] = {*asyncio.all_tasks(loop)}
    loop.close()
    until(lambda: not worker.is_running)
    assert "the event loop of the coroutine handlers was closed: the worker ends" in caplog.text
    assert {status(deployment.outbox, message) for message in made} == {"Ready"}
    for task in tasks:  # they will never end, which asyncio would tell of
        task._log_destroy_pending = False
        task.get_coro().close()
