"""However handlers misbehave: so many threads and connections, and no more."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker import fixed
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, comes, connections, nothing, put, put_many, status, threads, until


@pytest.mark.every_engine
@pytest.mark.dialect("postgres")
def test_handlers_that_hang_exhaust_neither_the_process_nor_the_server(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """When the replacements hang too, nothing more is claimed, and that is said once; later all goes on."""
    go = threading.Event()
    worker = make(boxes=["outbox"], threads=3, handler_timeout=0.1, backoff=fixed(3600), reap_seconds=0.2)
    calls = Calls()

    def handle(message: Any) -> None:
        call = calls.begin(message)
        comes(go, 30)
        calls.end(call)

    worker.add_handler("t", handle)
    made = put_many(deployment.outbox, 40)
    before = connections(db)
    worker.start()
    until(lambda: "nothing is claimed" in caplog.text)
    time.sleep(0.5)
    assert len(calls.all) == 6
    assert len(threads()) <= 2 * 3 + 4
    assert connections(db) - before <= 2 * 3 + 4
    left = [status(deployment.outbox, message) for message in made]
    assert "InProgress" not in left, "what nobody can handle is left to other workers"
    assert sum(deployment.outbox.get(message).attempt for message in made) == 6
    assert sum("nothing is claimed" in record.getMessage() for record in caplog.records) == 1
    with caplog.at_level(logging.INFO):
        go.set()
        until(lambda: sum(status(deployment.outbox, message) == "Done" for message in made) == 34)
        until(lambda: "claimed again" in caplog.text)
    until(lambda: len([name for name in threads() if name[-1].isdigit()]) == 3, 5, "the superfluous end")
    assert worker.stop(5)
    assert threads() == []


def test_a_thread_that_comes_back_late_works_on_if_it_is_needed(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """Both hang, both have been replaced, the replacements hang; whoever comes back first takes up work."""
    gates = [threading.Event() for _ in range(2)]
    worker = make(boxes=["outbox"], threads=1, handler_timeout=0.1, backoff=fixed(3600))

    def handle(message: Any) -> None:
        if message.payload.startswith("hang"):
            gates[int(message.payload[-1])].wait(20)

    worker.add_handler("t", handle)
    for number in range(2):
        put(deployment.outbox, payload=f"hang {number}")
    worker.start()
    until(lambda: worker.stats().retried == 2)
    late = put(deployment.outbox)
    time.sleep(0.3)
    assert status(deployment.outbox, late) == "Ready"
    gates[1].set()
    until(lambda: status(deployment.outbox, late) == "Done")
    gates[0].set()
    until(lambda: len([name for name in threads() if name[-1].isdigit()]) == 1)
    later = put(deployment.outbox)
    until(lambda: status(deployment.outbox, later) == "Done")
    assert worker.stop(5)


def test_a_place_is_left_once_however_late_the_handler_returns(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """At the very moment of the write-off too: never more at once than the limit."""
    calls = Calls()
    worker = make(boxes=["outbox"], threads=4, backoff=fixed(0.01), handler_timeout=0.05, max_attempts=0)
    in_time, late = calls.handler(sleep=0.052), calls.handler(sleep=0.3)
    turns = itertools.cycle((in_time, in_time, in_time, late))
    worker.add_handler("t", lambda message: next(turns)(message), concurrency=1)
    put_many(deployment.outbox, 12)
    worker.start()
    until(lambda: len(calls.all) >= 12, 20)
    worker.stop(5)
    assert calls.most == 1
    assert worker.stats().retried


def test_no_thread_is_added_while_the_worker_stops(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    go = threading.Event()
    worker = make(boxes=["outbox"], threads=1, handler_timeout=0.3, backoff=fixed(3600))
    calls = Calls()

    def handle(message: Any) -> None:
        calls.begin(message)
        comes(go, 20)

    worker.add_handler("t", handle)
    message = put(deployment.outbox)
    worker.start()
    until(lambda: calls.all)
    stopper = threading.Thread(target=worker.stop, args=(1.5,))
    stopper.start()
    until(lambda: deployment.outbox.get(message).attempt == 1)
    assert [name for name in threads() if name[-1].isdigit()] == ["pysqlbox-1"]
    go.set()
    stopper.join()
    assert status(deployment.outbox, message) == "Ready"


@pytest.mark.every_engine
@pytest.mark.dialect("postgres")
def test_a_worker_of_many_threads_needs_few_connections(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """Threads share two, with whoever does the chores; the lease keeper and the listener have one each."""
    worker = make(boxes=["outbox"], threads=32, reap_seconds=0.05, schedule_seconds=0.05)
    worker.add_handler("t", lambda _message: time.sleep(0.02))
    put_many(deployment.outbox, 600)
    before = connections(db)
    worker.start()
    until(lambda: worker.stats().acked > 200)
    assert connections(db) - before <= 4
    until(lambda: worker.stats().acked == 600)
    worker.stop()


def test_a_message_never_waits_behind_another_while_a_thread_is_free(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """What one thread has claimed because all were quick goes to all as soon as one of them is slow."""
    calls = Calls()
    worker = make(boxes=["outbox"], threads=8, batch_size=50)
    worker.add_handler("t", nothing)
    put_many(deployment.outbox, 1000)
    worker.drain()
    slow = make(boxes=["outbox"], threads=8, batch_size=50)

    def handle(message: Any) -> None:
        call = calls.begin(message)
        if message.topic == "t" and int(message.payload) >= 600:
            time.sleep(0.25)
        calls.end(call)

    slow.add_handler("t", handle)
    put_many(deployment.outbox, 624)  # all are quick but the last 24
    began = time.monotonic()
    assert slow.drain() == 624
    assert time.monotonic() - began < 24 * 0.25 * 0.6, "one after the other"
    assert calls.most == 8


def test_what_was_claimed_with_a_message_that_turns_out_slow_goes_to_others(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """One thread has claimed all of them, since nothing was known of slowness; it hangs in the first."""
    go = threading.Event()
    worker = make(boxes=["outbox"], threads=2, poll_seconds=30, listen=False)
    quick = iter(range(10_000))

    def handle(message: Any) -> None:
        next(quick)
        if message.payload == "slow":
            comes(go, 20)

    worker.add_handler("t", handle)
    put_many(deployment.outbox, 500)
    slow = put(deployment.outbox, payload="slow")
    made = put_many(deployment.outbox, 30)
    worker.start()
    until(lambda: {status(deployment.outbox, message) for message in made} == {"Done"}, 5)
    assert status(deployment.outbox, slow) == "InProgress"
    go.set()
    assert worker.stop(5)
