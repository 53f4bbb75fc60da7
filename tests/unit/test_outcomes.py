"""Results that wait for the database: what it can store, how long they have waited, how they are cut up."""

from __future__ import annotations

import json
import threading
import time

import pytest

from pysqlbox.worker.outcomes import Outcomes


def test_a_reason_is_kept_as_every_database_takes_it() -> None:
    """A NUL, or half of a surrogate pair, would have the whole call refused, with everybody's results."""
    it = Outcomes()
    it.add(1, "retry", "a\0b\ud800c")
    assert it.others == [{"id": 1, "result": "retry", "error": "a\ufffdb?c"}]
    assert json.loads(it.as_json().encode()) == it.others


def test_what_is_not_given_is_not_said() -> None:
    """Then the database has its own: the backoff, the number of attempts."""
    it = Outcomes()
    it.add(1, "retry")
    it.add(2, "retry", "", 0.0, 0)
    assert it.others == [
        {"id": 1, "result": "retry"},
        {"id": 2, "result": "retry", "error": "", "delay_seconds": 0.0, "max_attempts": 0},
    ]


def test_results_have_waited_since_the_last_were_taken_or_the_thread_began() -> None:
    """One that was idle for an hour does not settle after its first message."""
    it, now = Outcomes(), time.monotonic()
    it.taken_at = now - 3600
    assert it.wait_since(now - 7200) == 0.0, "there are none"
    it.acked.append(1)
    assert 3600 <= it.wait_since(now - 7200) < 7200
    assert it.wait_since(time.monotonic() + 1) < 0
    it.take()
    it.add(2, "fail", "no")
    assert 0.0 <= it.wait_since(0.0) < 3600
    it.taken_at = now - 3600
    assert it.wait_since(0.0) >= 3600, "these wait as well"


def test_the_parts_are_the_acknowledged_and_each_of_the_others() -> None:
    it = Outcomes()
    assert it.parts() == []
    it.add(3, "fail", "no")
    assert [len(part) for part in it.parts()] == [1], "nobody is acknowledged"
    it.acked += [1, 2]
    assert [part.acked for part in it.parts()] == [[1, 2], []]
    assert [part.acked for part in it.parts()[0].halves()] == [[1], [2]]


def test_what_is_taken_is_somebody_s_until_it_is_given_back() -> None:
    """Before what has come since."""
    it = Outcomes()
    it.acked.append(1)
    it.add(2, "fail", "no")
    taken = it.take()
    assert not it
    assert json.loads(taken.as_json()) == [
        {"result": "ack", "ids": [1]}, {"id": 2, "result": "fail", "error": "no"},
    ]  # fmt: skip
    it.acked.append(3)
    it.add(4, "fail", "no")
    it.give_back(taken)
    assert (it.acked, [record["id"] for record in it.others]) == ([1, 3], [2, 4])


@pytest.mark.parametrize("what", ["take", "give back"])
def test_who_takes_and_who_gives_back_come_one_after_the_other(what: str) -> None:
    it, taken, done = Outcomes(), Outcomes(), threading.Event()
    it.acked.append(1)
    taken.acked.append(2)

    def come() -> None:
        if what == "take":
            it.take()
        else:
            it.give_back(taken)
        done.set()

    with it._lock:
        thread = threading.Thread(target=come)
        thread.start()
        assert not done.wait(0.05)
        assert it.acked == [1]
    assert done.wait(10)
    thread.join()
    assert it.acked == ([] if what == "take" else [2, 1])
