"""The steady load of the benchmark suite: what becomes of a worker's notes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.peers.catalogue import ALL
from benchmarks.peers.environments import Own, UnavailableError
from benchmarks.peers.scripts.protocol import Recorder, Task, body
from benchmarks.suite.scenarios.worker.chaos import DOUBLED, LOST, PAUSE, counted
from benchmarks.suite.scenarios.worker.mixed import record, wrong
from benchmarks.suite.scenarios.worker.pressure import back, kept
from benchmarks.suite.scenarios.worker.steady import LOADS, P999, SETTLED, measured
from benchmarks.suite.store import CLIENT_CPU, P50, P99, RATE, SERVER_CPU

SECOND = 1_000_000_000


def told(count: int, milliseconds: float) -> dict[str, Any]:
    """One message each millisecond, of which the last tenth took ten times as long."""
    latencies = [
        (n, int(milliseconds * (10 if n >= count * 0.91 else 1) * 1e6), n * 1_000_000) for n in range(count)
    ]
    return {"ids": [str(n) for n in range(count)], "latencies": latencies}


def test_percentiles_and_costs_are_of_the_messages() -> None:
    found = measured(told(1000, 2.0), 1000, 0.5, 0.25, [3, 5], 0.1, 1000, 1000)
    assert found.problem is None
    values = found.values
    assert (values[P50], values[P99], values[P999]) == pytest.approx((2.0, 20.0, 20.0))
    assert values[CLIENT_CPU] == pytest.approx(250)
    assert values[SERVER_CPU] == pytest.approx(500)
    assert values[RATE] == pytest.approx(1000, rel=0.01)
    assert values[SETTLED] == pytest.approx(4.0, rel=0.01)


def test_a_load_that_was_not_reached_is_told() -> None:
    assert "reached 1,001 messages/s" in str(measured(told(1000, 1), 1000, 0, 0, [], 0, 1000, 2000).problem)


def test_what_is_handled_twice_counts_in_no_median() -> None:
    twice = told(1000, 1)
    twice["ids"][1] = "0"
    assert measured(twice, 1000, 0, 0, [], 0, 1000, 1000).problem == "1 handled more than once"


def test_every_load_has_a_name_of_its_own() -> None:
    assert {name: load.variant for name, load in LOADS.items()} == {name: name for name in LOADS}


def test_handlers_take_what_the_scenario_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_TASK", '{"seconds": 0.25, "workers": 7}')
    recorder = Recorder("steady")
    assert recorder.task == Task(0.25, 7)
    recorder.arrived(1, body(0, 5))
    number, latency, at = recorder.latencies[0]
    assert (number, at) == (0, 5)
    assert latency > 0
    assert recorder.first


def test_another_checkout_is_measured_where_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    other = next(peer for peer in ALL if peer.name == "pysqlbox (before)")
    assert isinstance(other.environment, Own)
    monkeypatch.delenv("PYSQLBOX_BENCH_BEFORE", raising=False)
    with pytest.raises(UnavailableError, match="PYSQLBOX_BENCH_BEFORE is not set"):
        other.environment.install(other.folder)
    monkeypatch.setenv("PYSQLBOX_BENCH_BEFORE", "/somewhere")
    assert other.environment.install(other.folder).environment["BENCH_CHECKOUT"] == "/somewhere"
    folders = {peer.folder for peer in ALL if peer.name.startswith("pysqlbox") and peer is not other}
    assert other.folder not in folders, "its databases are its own"


def test_a_burst_is_over_when_latency_is_as_before() -> None:
    before = [(n * SECOND // 100, 5.0) for n in range(100)]
    burst = [(SECOND + n, 900.0) for n in range(100)]
    after = [(2 * SECOND + n * SECOND // 100, 300.0 if n < 42 else 6.0) for n in range(200)]
    assert back([*before, *burst, *after], SECOND, 2 * SECOND) == pytest.approx(0.4, abs=0.11)
    assert back([*before, *burst, *after[42:]], SECOND, 2 * SECOND) == 0.0


def test_what_is_kept_is_the_rate_of_the_end() -> None:
    assert kept([(n / 10, 10 * n) for n in range(31)]) == pytest.approx(1.0)
    assert kept([(n / 10, 10 * n if n < 15 else 150 + 5 * (n - 15)) for n in range(31)]) == pytest.approx(0.5)


def test_accidents_are_counted_by_what_handlers_saw() -> None:
    seen = [f"{n} {n * SECOND}" for n in (0, 1, 2)] + [f"2 {7 * SECOND}"]
    found = counted(seen, 4, 0, 9.0, 2)
    assert (found.values[LOST], found.values[DOUBLED], found.values[PAUSE]) == (1, 1, 5)
    assert found.problem is None
    assert "1 messages were left after 2 accidents" in str(counted(seen, 4, 1, 9.0, 2).problem)


def test_a_mixture_has_every_kind_and_is_counted() -> None:
    records = [record(number) for number in range(8)]
    assert [sorted(set(each) - {"topic", "payload"}) for each in records] == 2 * [
        ["delay_seconds"], [], ["group_id"], ["dedup_key"]
    ]  # fmt: skip
    assert [len(each["payload"]) > 10_000 for each in records] == [number == 3 for number in range(8)]
    once = [str(number) for number in range(8)]
    assert wrong([*once, "1", "5"], 8) is None
    assert wrong(once, 8) == "0 handled again, 2 expected"
    assert wrong(once[1:], 8) == "7 of 8 handled"
