"""A worker in the register: from its start to its end, and forgotten when it could not say goodbye."""

from __future__ import annotations

import os
from datetime import datetime

import pytest

import pysqlbox
from pysqlbox import InvalidArgument
from pysqlbox.worker import presence
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import nothing, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


@pytest.mark.every_engine
def test_a_worker_says_who_it_is_and_leaves(box: Box, make: MakeWorker) -> None:
    worker = make(name="courier", threads=3, report_seconds=20)
    worker.add_handler("b", nothing)
    worker.add_handler("a", nothing)
    worker.start()
    until(lambda: len(box.workers()) == 1)
    (seen,) = box.workers()
    assert (seen.owner_token, seen.name, seen.pid) == (worker.owner_token, "courier", os.getpid())
    assert (seen.threads, seen.version, seen.topics) == (3, pysqlbox.__version__, ["a", "b"])
    assert isinstance(seen.started_at, datetime)
    assert seen.host
    worker.stop()
    assert box.workers() == []


@pytest.mark.every_engine
def test_it_says_so_again_and_again(box: Box, make: MakeWorker, db: Database) -> None:
    worker = make(topics=["c"], report_seconds=0.1)
    worker.start()
    until(lambda: len(box.workers()) == 1)
    before = box.workers()[0]
    assert before.topics == ["c"]
    db.advance(3600)
    until(lambda: (box.workers() or [before])[0].seen_at != before.seen_at)
    assert box.workers()[0].started_at == before.started_at
    worker.stop()


def test_its_name_is_the_programs() -> None:
    assert presence._program()  # what a worker without a name is called
    with pytest.raises(InvalidArgument, match="name"):
        pysqlbox.connect("postgresql://127.0.0.1:1/none").worker(name="")
