"""FIFO groups: one at a time and in order, whatever becomes of a message."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import pytest

import pysqlbox
from pysqlbox import DeadLetter, Release, Retry
from pysqlbox.worker import fixed
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, put, put_many, status, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


@pytest.mark.every_engine
def test_a_group_goes_in_order_and_one_at_a_time(box: Box, make: MakeWorker) -> None:
    groups: dict[str, Calls] = defaultdict(Calls)
    worker = make(threads=6, poll_seconds=30, listen=False)

    def handle(message: Any) -> None:
        call = groups[message.group_id].begin(message)
        time.sleep(0.002)
        groups[message.group_id].end(call)

    worker.add_handler("t", handle)
    made = {f"g{n}": put_many(box, 25, group_id=f"g{n}") for n in range(6)}
    worker.start()
    until(lambda: worker.stats().acked == 150, 20)
    worker.stop()
    for group, ids in made.items():
        assert groups[group].ids == ids
        assert groups[group].most == 1


def test_obx_054_ibx_079_slow_groups_go_side_by_side(box: Box, make: MakeWorker) -> None:
    """Groups that were claimed together are handled by several threads, each group by one."""
    calls = Calls()
    worker = make(threads=4, poll_seconds=30, listen=False)
    worker.add_handler("t", calls.handler(sleep=0.1))
    made = [put(box, group_id=f"g{n % 4}") for n in range(12)]
    began = time.monotonic()
    worker.start()
    until(lambda: worker.stats().acked == 12)
    took = time.monotonic() - began
    worker.stop()
    assert calls.most >= 3
    assert took < 1.2, "one after the other"
    for group in range(4):
        assert [i for i in calls.ids if i in made[group::4]] == made[group::4]


def test_what_follows_in_a_slow_group_waits_for_no_poll(box: Box, make: MakeWorker, calls: Calls) -> None:
    worker = make(threads=3, poll_seconds=30, listen=False)
    worker.add_handler("slow", calls.handler(sleep=0.3))
    worker.add_handler("t", calls.handler(sleep=0.06))
    first = put(box, "slow")
    made = put_many(box, 20, group_id="g")
    worker.start()
    until(lambda: worker.stats().acked == 21, 6)
    worker.stop()
    assert [i for i in calls.ids if i != first] == made


@pytest.mark.every_engine
@pytest.mark.parametrize("how", [Retry(delay=5), ValueError("again")], ids=["Retry", "exception"])
def test_a_retry_holds_up_its_group_and_releases_those_behind_it(
    box: Box, make: MakeWorker, calls: Calls, db: Database, how: object
) -> None:
    worker = make(threads=1, backoff=fixed(5))
    worker.add_handler("bad", calls.handler(how, None))
    worker.add_handler("t", calls.handler())
    made = [put(box, topic, group_id="g") for topic in ("t", "bad", "t", "t")]
    other = put(box, group_id="other")
    worker.drain()
    assert [i for i in calls.ids if i != other] == made[:2]
    assert status(box, other) == "Done"
    assert [box.get(message).attempt for message in made] == [0, 1, 0, 0]
    assert [status(box, message) for message in made] == ["Done", "Ready", "Ready", "Ready"]
    db.advance(6)
    worker.drain()
    assert [i for i in calls.ids if i != other] == [made[0], made[1], *made[1:]]


def test_a_released_message_holds_up_those_behind_it(box: Box, make: MakeWorker, calls: Calls) -> None:
    worker = make(threads=1)
    worker.add_handler("bad", calls.handler(Release(), None))
    worker.add_handler("t", calls.handler())
    made = [put(box, topic, group_id="g") for topic in ("bad", "t")]
    worker.drain()
    assert calls.ids == [made[0], made[0], made[1]]


@pytest.mark.parametrize("how", [DeadLetter("no"), pysqlbox.NonRetryable("no")], ids=["DeadLetter", "raise"])
def test_a_dead_letter_lets_its_group_go_on(box: Box, make: MakeWorker, calls: Calls, how: object) -> None:
    worker = make()
    worker.add_handler("bad", calls.handler(how))
    worker.add_handler("t", calls.handler())
    made = [put(box, topic, group_id="g") for topic in ("t", "bad", "t", "t")]
    worker.drain()
    assert calls.ids == made
    assert [status(box, message) for message in made] == ["Done", "Failed", "Done", "Done"]


def test_the_last_attempt_lets_its_group_go_on(box: Box, make: MakeWorker, calls: Calls) -> None:
    worker = make(max_attempts=1)
    worker.add_handler("bad", calls.handler(ValueError("no")))
    worker.add_handler("t", calls.handler())
    made = [put(box, topic, group_id="g") for topic in ("bad", "t", "t")]
    worker.drain()
    assert calls.ids == made
    assert [status(box, message) for message in made] == ["Failed", "Done", "Done"]


def test_an_unknown_topic_holds_up_its_group(box: Box, make: MakeWorker, calls: Calls, db: Database) -> None:
    worker = make()
    worker.add_handler("t", calls.handler())
    made = [put(box, topic, group_id="g") for topic in ("t", "new", "t")]
    worker.drain()
    assert calls.ids == made[:1]
    assert {box.get(message).attempt for message in made} == {0}
    worker.add_handler("new", calls.handler())
    db.advance(6)
    worker.drain()
    assert calls.ids == made


@pytest.mark.every_engine
def test_two_workers_keep_the_order_of_groups(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    groups: dict[str, Calls] = defaultdict(Calls)

    def handle(message: Any) -> object:
        group = groups[message.group_id]
        call = group.begin(message)
        time.sleep(0.001)
        group.end(call)
        return Release() if message.id % 7 == 0 and len(group.of(message.id)) == 1 else None

    workers = [make(boxes=["outbox"], threads=3, poll_seconds=0.02) for _ in range(2)]
    made = {f"g{n}": put_many(deployment.outbox, 30, group_id=f"g{n}") for n in range(5)}
    for worker in workers:
        worker.add_handler("t", handle)
        worker.start()
    until(lambda: sum(worker.stats().acked for worker in workers) == 150, 20)
    for worker in workers:
        worker.stop()
    for group, ids in made.items():
        assert list(dict.fromkeys(groups[group].ids)) == ids
        assert groups[group].ids == sorted(groups[group].ids)
        assert groups[group].most == 1
