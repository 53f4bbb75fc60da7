"""What many measurements say together: medians of the rounds, and how far these lay apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.queue.figures import Spread
from benchmarks.suite.runner import Contestant, Metric, Scenario
from benchmarks.suite.store import P99, Curve, Measurement, Store

OURS = "pysqlbox"
"""The contestant that the others are compared with, in the same round."""
DISTRIBUTION = "distribution"
"""Curves of this name are (share of the messages, milliseconds): pictures have those of all rounds pooled."""
POINTS = 60
ENOUGH = 100
"""Fewer messages have no 99th percentile worth the name."""


@dataclass(frozen=True)
class Result:
    """One contestant in one variant of a scenario.

    `relative`: the headline over that of pysqlbox, taken round by round; `problems`: of rounds that count in
    no median.
    """

    contestant: Contestant
    values: Mapping[str, Spread]
    relative: Spread | None
    rounds: int
    messages: int
    curves: Mapping[str, Curve]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A scenario's variant: its results, the best headline first, floors last.

    `setup`: what they were measured with, all of them.
    """

    scenario: Scenario[Any]
    variant: str
    results: Sequence[Result]
    setup: Mapping[str, Any]

    @property
    def headline(self) -> Metric:
        """What the scenario is about."""
        return self.scenario.metrics[0]

    def measured(self) -> list[Result]:
        """Those with a headline."""
        return [result for result in self.results if self.headline.name in result.values]


def summarise(store: Store, scenarios: Sequence[Scenario[Any]]) -> list[Part]:
    """Every variant of which there is a measurement, in the order of the scenarios; of the newest setup."""
    found: dict[tuple[str, str, str], list[Measurement]] = {}
    newest = store.newest()
    for measurement in store:
        key = measurement.key
        if measurement.setup == newest[key.scenario, key.variant]:
            found.setdefault((key.scenario, key.variant, key.contestant), []).append(measurement)
    parts = []
    for scenario in scenarios:
        for variant in scenario.variants:
            taken = {
                one.name: found[scenario.name, variant, one.name]
                for one in scenario.contestants
                if (scenario.name, variant, one.name) in found
            }
            if taken:
                by_name = {one.name: one for one in scenario.contestants}
                results = [_result(scenario, by_name[name], taken) for name in taken]
                setup = newest[scenario.name, variant]
                told = store.setups[setup] if setup < len(store.setups) else {}
                parts.append(Part(scenario, variant, _ordered(scenario, results), told))
    return parts


def quantile(curve: Curve, share: float) -> float:
    """What this share of the messages does not exceed."""
    return next((value for reached, value in curve if reached >= share - 1e-9), curve[-1][1])


def pooled(curves: Sequence[tuple[Curve, float]]) -> Curve:
    """One distribution of several, each of which counts as often as it has messages."""
    weighted: list[tuple[float, float]] = []
    for curve, messages in curves:
        before = 0.0
        for share, value in curve:
            weighted.append((value, (share - before) * messages))
            before = share
    whole, reached, points = sum(weight for _, weight in weighted), 0.0, []
    for value, weight in sorted(weighted):
        reached += weight
        points.append((reached / whole, value))
    return points


def thinned(curve: Curve, points: int = POINTS) -> Curve:
    """No more points than anybody can see; the first and the last stay."""
    if len(curve) <= points:
        return list(curve)
    step = (len(curve) - 1) / (points - 1)
    return [curve[round(number * step)] for number in range(points)]


def _result(
    scenario: Scenario[Any], contestant: Contestant, taken: Mapping[str, Sequence[Measurement]]
) -> Result:
    good = [one for one in taken[contestant.name] if not one.measured.problem]
    values = {
        metric.name: Spread.of(
            [one.measured.values[metric.name] for one in good if metric.name in one.measured.values]
        )
        for metric in scenario.metrics
        if any(metric.name in one.measured.values for one in good)
    }
    messages = sum(one.measured.messages for one in good)
    curves: dict[str, Curve] = {}
    distributions = [
        (one.measured.curves[DISTRIBUTION], one.measured.messages)
        for one in good
        if one.measured.curves.get(DISTRIBUTION)
    ]
    if distributions:
        curves[DISTRIBUTION] = pooled(distributions)
        if messages < ENOUGH:
            values.pop(P99, None)
    curves |= _typical(scenario, good, values)
    return Result(
        contestant,
        values,
        _relative(scenario.metrics[0].name, good, taken.get(OURS, ())),
        len(good),
        messages,
        curves,
        tuple(sorted({one.measured.problem for one in taken[contestant.name] if one.measured.problem})),
    )


def _typical(
    scenario: Scenario[Any], good: Sequence[Measurement], values: Mapping[str, Spread]
) -> dict[str, Curve]:
    """The other curves, of the round that is nearest to the median."""
    headline = scenario.metrics[0].name
    rounds = [one for one in good if headline in one.measured.values]
    if not rounds:
        return {}
    median = values[headline].median
    nearest = min(rounds, key=lambda one: abs(one.measured.values[headline] - median))
    return {name: curve for name, curve in nearest.measured.curves.items() if name != DISTRIBUTION and curve}


def _relative(name: str, good: Sequence[Measurement], ours: Sequence[Measurement]) -> Spread | None:
    mine = {one.key.round: one.measured.values[name] for one in good if name in one.measured.values}
    base = {
        one.key.round: one.measured.values[name]
        for one in ours
        if not one.measured.problem and one.measured.values.get(name)
    }
    ratios = [mine[number] / base[number] for number in mine.keys() & base.keys()]
    return Spread.of(ratios) if ratios else None


def _ordered(scenario: Scenario[Any], results: Sequence[Result]) -> list[Result]:
    headline = scenario.metrics[0]
    sign = -1 if headline.better == "higher" else 1

    def place(result: Result) -> tuple[bool, bool, float]:
        there = headline.name in result.values
        return (
            not there,
            result.contestant.floor,
            sign * result.values[headline.name].median if there else 0.0,
        )

    return sorted(results, key=place)
