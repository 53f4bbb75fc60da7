"""What Prometheus is told of a deployment."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import pysqlbox
from pysqlbox import metrics
from pysqlbox.calls import CallCounts
from pysqlbox.errors import DatabaseUnavailable
from pysqlbox.messages import BoxMetrics
from pysqlbox.metrics import exporter, topics
from tests.contract.support import HOSTILE, OWNER
from tests.metrics.reading import read, value
from tests.support.database import Database
from tests.worker.support import until


def test_every_figure_of_a_deployment_is_told(deployment: pysqlbox.Deployment, db: Database) -> None:
    outbox = deployment.outbox
    for topic in ("a", "a", "b"):
        outbox.enqueue(topic, "p")
    outbox.enqueue("a", "p", delay=600)
    (dead,) = outbox.claim(OWNER, batch_size=1)
    outbox.fail(OWNER, [dead.id], "hopeless")
    outbox.claim(OWNER, batch_size=1, lease_seconds=10)
    deployment.inbox.enqueue("c", "tests", "1", "p", group_id="g", delay=600)
    db.advance(30)
    samples = read(metrics.text(deployment))
    assert value(samples, "pysqlbox_up") == 1
    told = {
        name: value(samples, f"pysqlbox_{name}", box="outbox", topic="a")
        for name in (
            "ready_messages", "scheduled_messages", "in_flight_messages", "done_messages", "dead_messages",
            "given_up_messages", "expired_leases",
        )
    }  # fmt: skip
    assert list(told.values()) == [0, 1, 1, 0, 1, 1, 1]
    assert value(samples, "pysqlbox_ready_messages", box="outbox", topic="b") == 1
    assert value(samples, "pysqlbox_oldest_ready_age_seconds", box="outbox", topic="b") >= 30
    assert value(samples, "pysqlbox_oldest_ready_age_seconds", box="outbox", topic="a") == 0
    assert value(samples, "pysqlbox_oldest_dead_age_seconds", box="outbox", topic="a") >= 30
    assert value(samples, "pysqlbox_scheduled_messages", box="inbox", topic="c") == 1
    assert {each.labels["box"] for each in samples if each.name == "pysqlbox_blocked_groups"} == {
        "inbox", "mail", "orders", "outbox",
    }  # fmt: skip
    for name in ("upkeep", "reap"):
        assert value(samples, f"pysqlbox_{name}_age_seconds", box="outbox") >= 30, "never, since it was made"
    assert value(samples, "pysqlbox_pool_size") == 3
    assert value(samples, "pysqlbox_pool_connections", state="in_use") == 0
    assert not [each for each in samples if "store" in each.labels], "a plain deployment has no store's key"


def test_any_topic_is_a_label(deployment: pysqlbox.Deployment) -> None:
    for topic in HOSTILE:
        deployment.outbox.enqueue(topic, "p")
    samples = read(metrics.text(deployment))
    assert {each.labels["topic"] for each in samples if each.name == "pysqlbox_ready_messages"} == set(
        HOSTILE
    )


def test_a_thousand_topics_do_not_make_a_thousand_series(deployment: pysqlbox.Deployment) -> None:
    outbox = deployment.outbox
    outbox.enqueue_many([{"topic": f"t{number}", "payload": "p"} for number in range(1000)])
    outbox.enqueue_payloads("heavy", ["p"] * 50)
    samples = [each for each in read(metrics.text(deployment)) if each.name == "pysqlbox_ready_messages"]
    shown = {each.labels["topic"]: each.value for each in samples}
    assert len(shown) == metrics.TOPICS + 1
    assert shown["heavy"] == 50, "the heaviest have series of their own"
    assert shown[metrics.OTHER] == 1000 - (metrics.TOPICS - 1)
    everything = read(metrics.text(deployment, topics=None))
    assert value(everything, "pysqlbox_ready_messages", topic="t999") == 1
    assert len([each for each in everything if each.name == "pysqlbox_ready_messages"]) == 1001
    none = read(metrics.text(deployment, topics=0))
    assert value(none, "pysqlbox_ready_messages") == 1050


class Told:
    """A deployment that answers what a test wants, or raises it."""

    def __init__(self, *answers: Any, key: object = None) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.store = "told"
        self.store_key = key
        self.pool = self
        self.idle = self.open = self.size = 1
        self.counts: CallCounts | None = None

    def measure(self) -> None:
        """Nobody calls anything."""
        self.counts = CallCounts()

    def metrics(self) -> list[BoxMetrics]:
        """The next answer; the last one from then on."""
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return list(answer() if callable(answer) else answer)


def rows(*topics: str, ready: int = 1) -> list[BoxMetrics]:
    """One box with these topics."""
    found = [
        BoxMetrics("outbox", topic, ready, 0, 0, 0, 0, 0, 0, 1.5, None, None, None, None, None)
        for topic in topics
    ]
    return [*found, BoxMetrics("outbox", None, ready, 0, 0, 0, 0, 0, 0, 1.5, None, 0, None, 2.5, 0.5)]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scrape may ask."""
    monkeypatch.setattr(exporter, "SHARE", 1e9)


@pytest.mark.usefixtures("at_once")
def test_a_topic_that_is_shown_stays_shown() -> None:
    told = Told(rows("a", "b"), [*rows("c", ready=9)[:1], *rows("a", "b")], rows("c", "b"))
    shown = []
    for _ in range(3):
        samples = read(metrics.text(told, topics=2))  # type: ignore[arg-type]  # what it needs of a deployment
        shown.append({each.labels["topic"] for each in samples if each.name == "pysqlbox_ready_messages"})
    assert shown == [{"a", "b"}, {"a", "b", "other"}, {"b", "c"}]


@pytest.mark.usefixtures("at_once")
def test_stores_are_told_apart_and_one_that_fails_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stores = {
        "eu": Told(rows("a"), key="eu"),
        "us": Told(rows("a"), DatabaseUnavailable("away"), key="us"),
        7: Told(DatabaseUnavailable("never there"), key=7),
    }
    many = metrics.Exporter(stores)  # type: ignore[arg-type]  # what it needs of a deployment
    for _ in range(2):
        samples = read(str(many))
    assert [value(samples, "pysqlbox_up", store=key) for key in ("eu", "us", "7")] == [1, 0, 0]
    told = {each.labels["store"] for each in samples if each.name == "pysqlbox_ready_messages"}
    assert told == {"eu", "us"}, "what was known of one that is away is told with its age"
    assert value(samples, "pysqlbox_metrics_age_seconds", store="us") >= 0
    assert len([record for record in caplog.records if "away" in record.getMessage()]) == 1


def test_a_slow_database_is_asked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking never takes more than a tenth of one connection's time."""
    clock = {"now": 100.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])

    def slow() -> list[BoxMetrics]:
        clock["now"] += 3.0
        return rows("a")

    told = Told(slow)
    asked = []
    for pause in (0.0, 10.0, 10.0, 6.9, 0.2):
        clock["now"] += pause
        metrics.text(told)  # type: ignore[arg-type]  # what it needs of a deployment
        asked.append(told.asked)
    assert asked == [1, 1, 1, 1, 2]


def test_many_stores_share_what_one_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten stores, of which each takes a second: a tenth of one connection's time for all of them."""
    clock = {"now": 100.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(exporter, "AT_ONCE", 1)
    monkeypatch.setattr(exporter, "ANSWER_SECONDS", 3600.0)

    def slow() -> list[BoxMetrics]:
        clock["now"] += 1.0
        return rows("a")

    stores = {number: Told(slow, key=number) for number in range(10)}
    many = metrics.Exporter(stores)  # type: ignore[arg-type]  # what it needs of a deployment
    asked = []
    for pause in (0.0, 10.0, 70.0, 25.0):
        clock["now"] += pause
        samples = read(str(many))
        asked.append(sum(store.asked for store in stores.values()))
        for number in stores:
            assert value(samples, "pysqlbox_ready_messages", store=str(number), topic="a") == 1
    assert asked == [10, 10, 10, 20]


def test_many_stores_are_asked_a_few_at_a_time_and_have_few_series() -> None:
    gate, lock = threading.Semaphore(0), threading.Lock()
    going, most = 0, 0

    def answer() -> list[BoxMetrics]:
        nonlocal going, most
        with lock:
            going += 1
            most = max(most, going)
        assert gate.acquire(timeout=60)
        with lock:
            going -= 1
        return rows(*[f"t{n}" for n in range(50)])

    stores = {number: Told(answer, key=number) for number in range(200)}
    many = metrics.Exporter(stores)  # type: ignore[arg-type]  # what it needs of a deployment

    def let_go() -> None:
        until(lambda: going == exporter.AT_ONCE)
        gate.release(200)

    opener = threading.Thread(target=let_go)
    opener.start()
    samples = read(str(many))
    opener.join()
    assert most == exporter.AT_ONCE
    assert sum(each.name == "pysqlbox_up" for each in samples) == 200
    ready = [each for each in samples if each.name == "pysqlbox_ready_messages"]
    assert {each.labels["store"] for each in ready} == {str(number) for number in range(200)}
    assert len(ready) == 200 * (topics.ALL_TOPICS // 200 + 1)


def test_a_silent_database_does_not_hold_a_scrape_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "ANSWER_SECONDS", 0.05)
    answer = threading.Event()

    def silent() -> list[BoxMetrics]:
        assert answer.wait(60)
        return rows("a")

    told = Told(silent)
    for _ in range(3):
        samples = read(metrics.text(told))  # type: ignore[arg-type]  # what it needs of a deployment
        assert value(samples, "pysqlbox_up") == 0
    assert told.asked == 1, "nor do scrapes pile up behind it"
    monkeypatch.setattr(exporter, "ANSWER_SECONDS", 60.0)
    answer.set()
    assert value(read(metrics.text(told)), "pysqlbox_up") == 1  # type: ignore[arg-type]
