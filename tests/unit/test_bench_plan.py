"""The whole run: how long it takes, and that it asks nothing that cannot be borne."""

from __future__ import annotations

from benchmarks.common.databases import Databases
from benchmarks.common.server import Server
from benchmarks.suite.main import ROUNDS
from benchmarks.suite.runner import Plan
from benchmarks.suite.scenarios import ALL
from benchmarks.suite.scenarios.waiting import WAITING
from benchmarks.suite.scenarios.worker.steady import GRID, LOADS
from benchmarks.suite.server import Lab

MINUTES = 120
ELSEWHERE = ("pysqlbox T-SQL", "pysqlbox (before)")
"""They take part where a server of another kind, or another checkout, is given."""


def test_a_whole_run_takes_two_hours() -> None:
    """By what every scenario says of itself, which the progress of a run rests on too."""
    lab = Lab(Databases(Server("", is_local=True), False), False, 1.0, lambda _: None)
    plan = Plan(ROUNDS)
    seconds = sum(
        scenario.expected_seconds(lab) * min(ROUNDS, scenario.max_rounds or ROUNDS)
        for scenario in ALL
        for contestant in scenario.contestants
        for variant in scenario.variants
        if plan.wants(scenario, contestant)
        and contestant.name not in ELSEWHERE
        and scenario.takes_part(contestant, variant)
    )
    assert seconds / 60 <= MINUTES


def test_every_load_is_one_that_its_handlers_can_bear() -> None:
    assert LOADS.keys() <= GRID.keys()
    assert all(load.rate * load.milliseconds < 1000 * load.workers for load in GRID.values())
    assert {load.workers for load in GRID.values()} == {1, 16, 64, 128}
    assert {(load.milliseconds, load.rate) for load in GRID.values()} == {
        (milliseconds, rate)
        for milliseconds in (1, 10, 100)
        for rate in (100, 500, 2000)
        if (milliseconds, rate) != (100, 2000)  # two hundred handlers at once, and more than there are
    }
    assert set(WAITING.values()) == {1, 16, 128}
