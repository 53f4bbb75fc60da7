"""Processes that fork: before a worker starts, while it runs, and within a handler."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker.forking import EXIT_CODE
from tests.worker.conftest import MakeWorker
from tests.worker.support import nothing, put, put_many, status, until

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


def _in_child(work: Callable[[], object]) -> bytes:
    """What some work in a forked child answers, as bytes; what it raised, if it did."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            found = repr(work())
        except BaseException as error:  # noqa: BLE001  # the parent is told
            found = repr(error)
        os.write(writing, found.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def test_a_worker_that_was_made_before_a_fork_is_another_one_in_the_child(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """With the same owner two processes would take each other's leases for their own."""
    worker = make(boxes=["outbox"])
    worker.add_handler("t", nothing, concurrency=1)
    message = put(deployment.outbox)
    ours = worker.owner_token
    told = _in_child(lambda: (worker.owner_token == ours, worker.drain(timeout=30)))
    assert told == b"(False, 1)"
    assert worker.owner_token == ours
    assert status(deployment.outbox, message) == "Done"


def test_the_child_of_a_running_worker_has_none_that_runs(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    worker = make(boxes=["outbox"])
    worker.add_handler("t", nothing)
    with worker:
        first = put(deployment.outbox)
        until(lambda: status(deployment.outbox, first) == "Done")
        told = _in_child(lambda: (worker.is_running, worker.stop(), worker.stats().handled))
        assert told == b"(False, True, 0)"
        second = put(deployment.outbox)
        until(lambda: status(deployment.outbox, second) == "Done")
        assert worker.stats().handled == 2


@pytest.mark.parametrize("kind", ["quick", "with context", "transactional", "transactional, raises"])
def test_a_child_that_comes_back_from_a_handler_ends_at_once(
    deployment: pysqlbox.Deployment, make: MakeWorker, kind: str
) -> None:
    """It has its parent's connections, on which it must not even roll back."""
    worker = make(boxes=["outbox"], threads=1)
    codes: list[int] = []

    def handle(_message: Any) -> None:
        pid = os.fork()
        if pid == 0 and kind.endswith("raises"):
            raise RuntimeError("in the child")
        if pid:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def with_context(message: Any, context: Any) -> None:
        del context
        handle(message)

    if kind == "quick":
        worker.add_handler("t", handle)
    else:
        worker.add_handler("t", with_context, transactional=kind.startswith("transactional"))
    messages = put_many(deployment.outbox, 3)
    assert worker.drain(timeout=60) == 3
    assert codes == [EXIT_CODE] * 3
    assert {status(deployment.outbox, each) for each in messages} == {"Done"}
