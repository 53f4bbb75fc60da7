"""What the benchmark suite makes of its measurements: medians, ratios, percentiles, pages and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.queue.pool import Turn
from benchmarks.suite import headline, plots, reading, report
from benchmarks.suite.main import RESULTS, ROOT
from benchmarks.suite.scenarios import ALL
from benchmarks.suite.scenarios.common import Worked
from benchmarks.suite.scenarios.worker import SCENARIOS
from benchmarks.suite.scenarios.worker.latency import distribution
from benchmarks.suite.store import P50, P99, RATE, Key, Measured, Store
from benchmarks.suite.summary import Part, pooled, quantile, summarise, thinned

MILLISECOND = 1e6


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three rounds of two queues; one round of one of them went wrong."""
    store = Store(tmp_path / "suite.jsonl")
    store.start({"date": "today", "rounds": 3, "versions": {"worker: pgqueuer": {"pgqueuer": "1"}}})
    for number, (ours, theirs) in enumerate([(1000.0, 500.0), (2000.0, 400.0), (3000.0, 300.0)]):
        store.add(Key("worker_drain", "1 process", "pysqlbox", number), Measured({RATE: ours}))
        wrong = "2 handled more than once" if number == 2 else None
        store.add(
            Key("worker_drain", "1 process", "pgqueuer", number), Measured({RATE: theirs}, problem=wrong)
        )
    for number, first in enumerate([1, 101]):
        arrived = [millisecond * MILLISECOND for millisecond in range(first, first + 100)]
        store.add(
            Key("latency_idle", "1 process", "pysqlbox", number),
            Measured(
                {P50: first + 49.0, P99: first + 98.0},
                messages=100,
                curves={"distribution": distribution(arrived)},
            ),
        )
    return store


def part(store: Store, name: str) -> Part:
    """One scenario's first variant."""
    return next(part for part in summarise(store, SCENARIOS) if part.scenario.name == name)


def test_medians_ratios_and_what_went_wrong(store: Store) -> None:
    first, second = part(store, "worker_drain").results
    assert (first.contestant.name, first.values[RATE].median, first.rounds) == ("pysqlbox", 2000, 3)
    assert (second.contestant.name, second.values[RATE].median, second.rounds) == ("pgqueuer", 450, 2)
    assert second.relative is not None
    assert second.relative.median == pytest.approx((0.5 + 0.2) / 2)
    assert second.problems == ("2 handled more than once",)


def test_percentiles_are_of_one_round_and_of_these_the_median(store: Store) -> None:
    (ours,) = part(store, "latency_idle").results
    assert ours.values[P50].median == 100
    assert ours.values[P99].median == 149
    assert (ours.values[P50].low, ours.values[P50].high) == (50, 150)


def test_a_round_counts_as_often_as_it_has_messages() -> None:
    curve = pooled([([(0.5, 1.0), (1.0, 2.0)], 10), ([(1.0, 9.0)], 30)])
    assert curve == [(0.125, 1.0), (0.25, 2.0), (1.0, 9.0)]
    assert [quantile(curve, share) for share in (0.1, 0.25, 0.5, 1)] == [1, 2, 9, 9]


def test_few_points_still_have_both_ends() -> None:
    curve = thinned([(float(x), float(x)) for x in range(1000)], 10)
    assert (len(curve), curve[0], curve[-1]) == (10, (0.0, 0.0), (999.0, 999.0))
    thin = distribution([float(x) for x in range(10_000)])
    assert len(thin) <= 202
    assert thin[-1] == (1.0, round(9999 / MILLISECOND, 4))


def test_pages_tell_it(store: Store, tmp_path: Path) -> None:
    numbers, page = report.write(tmp_path, store, SCENARIOS, name="suite", pictures="plots")
    told = json.loads(numbers.read_text())
    assert [scenario["name"] for scenario in told["scenarios"]] == ["worker_drain", "latency_idle"]
    text = page.read_text()
    assert "| pysqlbox | **2,000** (1,000 to 3,000) |  | 3 |" in text
    assert "| pgqueuer | **450** (400 to 500) | 0.35 | 2 |" in text
    assert "- pgqueuer: 2 handled more than once" in text
    assert "450" in report.terminal(store, SCENARIOS)


def test_pictures(store: Store, tmp_path: Path) -> None:
    names = {path.name for path in plots.draw(tmp_path, store, SCENARIOS)}
    assert {"worker_drain.png", "latency_idle.png", "headline.png"} <= names
    assert all((tmp_path / name).stat().st_size > 5_000 for name in names)


def test_the_front_page_tells_what_was_measured() -> None:
    """README.md's "How fast" is what the report makes of the committed results."""
    told = json.loads((RESULTS / "suite.json").read_text(encoding="utf-8"))
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, rest = page.partition(report.BEGIN)
    region, end, _ = rest.partition(report.END)
    assert end
    assert region.partition("\n")[2].strip() == headline.front_page(told).strip(), (
        "python -m benchmarks --report"
    )


def test_only_the_marked_part_of_a_page_is_written(store: Store, tmp_path: Path) -> None:
    numbers, _ = report.write(tmp_path, store, SCENARIOS, name="suite", pictures="plots")
    told = json.loads(numbers.read_text())
    page = tmp_path / "README.md"
    page.write_text("# Before\n")
    assert not report.write_front_page(page, told)
    page.write_text(f"# Before\n\n{report.BEGIN} -->\nwritten before\n{report.END}\n\n# After\n")
    for _ in range(2):
        assert report.write_front_page(page, told)
        text = page.read_text()
        assert text.startswith(f"# Before\n\n{report.BEGIN} -->\n\n![")
        assert text.endswith(f"\n{report.END}\n\n# After\n")
        assert "| messages/s by one worker process | **2,000** | 450 | pgqueuer |" in text
        assert "written before" not in text


def test_where_others_were_better_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path / "suite.jsonl")
    store.start({})
    for name, rate in [("pysqlbox", 1000.0), ("pysqlbox (batches of 500)", 2000.0), ("pg-boss", 1500.0)]:
        store.add(Key("worker_drain", "1 process", name, 0), Measured({RATE: rate}))
    for name, median in [("pysqlbox", 2.0), ("pgqueuer", 1.0)]:
        store.add(Key("latency_idle", "1 process", name, 0), Measured({P50: median}))
    _, page = report.write(tmp_path, store, SCENARIOS, name="suite", pictures="plots")
    _, _, told = page.read_text().partition("## Where others were better")
    rows = [line for line in told.partition("\n## ")[0].splitlines() if "**" in line]
    assert rows == [
        "| Latency when idle, a message every 50 ms, 1 process | median, ms | pgqueuer | **1.00** | "
        "2.00 (pysqlbox) |"
    ]


def test_a_long_step_counts_in_every_part_of_its_time() -> None:
    turn = Turn(100, 10.0, 14.0, None, 0.0, ((13.0, 60), (13.5, -1), (14.0, 40)))
    curve = Worked([turn], 0, None, None).curve(1.0)
    assert curve == [(0.5, 20.0), (1.5, 20.0), (2.5, 20.0), (3.5, 40.0)]


def test_everybody_has_looks_of_their_own() -> None:
    names = {one.name for scenario in ALL for one in scenario.contestants}
    assert names == set(plots.LOOKS)
    others = [look for name, look in plots.LOOKS.items() if not name.startswith("pysqlbox")]
    assert len({look.colour for look in others}) == len(others)


def test_every_scenario_has_its_question() -> None:
    assert set(reading.QUESTIONS) == {scenario.name for scenario in ALL}
    measured = {metric.name for scenario in ALL for metric in scenario.metrics}
    assert set(reading.COLUMNS) <= measured


def test_the_front_page_is_short_and_tells_where_others_are_ahead() -> None:
    variants = {scenario.name: scenario.variants for scenario in ALL}
    metrics = {scenario.name: {metric.name: metric.better for metric in scenario.metrics} for scenario in ALL}
    assert len(headline.ROWS) <= headline.MOST_ROWS
    for row in headline.ROWS:
        assert row.variant in variants[row.scenario]
        assert metrics[row.scenario][row.value] == row.better

    def result(name: str, value: float, *, floor: bool = False, commit: str = "abc") -> dict[str, object]:
        values = {RATE: {"median": value}}
        told = {"contestant": name, "variant": "1 connection", "values": values, "floor": floor}
        return {**told, "commit": commit, "rounds": 1, "curves": {}}

    told = {
        "about": {"date": "today"},
        "scenarios": [
            {
                "name": "enqueue_single",
                "results": [
                    result("pysqlbox", 80.0),
                    result("pgq", 100.0),
                    result("copy", 900.0, floor=True),
                ],
            },
            {
                "name": "enqueue_bulk",
                "results": [result("pysqlbox", 3.0, commit="def"), result("pgmq", 2.0, commit="def")],
            },
        ],
    }
    text = headline.front_page(told)
    assert "| messages/s enqueued one by one | 80.0 | **100** | pgq | `abc` |" in text
    assert "| messages/s enqueued by the thousand | **3.00** | 2.00 | pgmq | `def` |" in text
    assert "Behind pgq in 1 of these rows; [others are ahead elsewhere too](benchmarks/" in text
    assert len(text.splitlines()) < 16


def test_what_another_commit_was_measured_with_is_not_mixed_in(tmp_path: Path) -> None:
    store = Store(tmp_path / "suite.jsonl")
    store.enter({"commit": "old"})
    store.start({})
    for number in range(3):
        for name in ("pysqlbox", "pgmq"):
            store.add(Key("enqueue_single", "1 connection", name, number), Measured({RATE: 100.0}))
    store.add(Key("enqueue_bulk", "1 connection", "pysqlbox", 0), Measured({RATE: 7.0}))
    store.enter({"commit": "new"})
    key = Key("enqueue_single", "1 connection", "pysqlbox", 0)
    assert key not in store, "what is of another commit is not taken for measured"
    store.add(key, Measured({RATE: 900.0}))
    assert key in store
    store.pack()
    again = Store(store.path)
    again.load()
    assert len(again) == 2, "what it takes the place of goes"
    single, bulk = summarise(again, ALL)
    assert [(one.contestant.name, one.values[RATE].median) for one in single.results] == [("pysqlbox", 900.0)]
    assert (single.setup, bulk.setup) == ({"commit": "new"}, {"commit": "old"})
    again.enter({"commit": "new"})
    assert (key in again, len(again.setups)) == (True, 2)
