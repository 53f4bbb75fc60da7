"""Taking messages out: a backlog, a big one, and one half of which is delayed or fails at first."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.suite.contestants.base import Ability, Load, SqlContestant
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import (
    CALLS,
    COSTS,
    RATE,
    SqlScenario,
    by,
    check,
    connections_of,
    work,
)
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

CONNECTIONS = (1, 2, 4)
BATCHES = (50, 500)
BATCH = 50


class DrainRoutine(SqlScenario):
    """A backlog that is there."""

    name: ClassVar[str] = "drain_routine"
    title: ClassVar[str] = "Drain through statements: take a batch, finish it"
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, *CALLS, *COSTS)
    variants: ClassVar[tuple[str, ...]] = tuple(
        f"{by(count)}, batches of {batch}" for count in CONNECTIONS for batch in BATCHES
    )
    needs: ClassVar[frozenset[Ability]] = frozenset({"drain"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{_backlog(lab):,} messages of 200 bytes, for {_seconds(lab):g} s or until all are taken"
            f"{less(self)}"
        )

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:
        """Some have one consumer."""
        return connections_of(variant) == 1 or "parallel" in contestant.can

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """Until the time is over, or it is empty."""
        connections, batch = connections_of(variant), int(variant.rsplit(" ", 1)[1])
        return drain(lab, contestant, Load(_backlog(lab), batch=batch), connections, _seconds(lab))


class Backlog(SqlScenario):
    """A million messages."""

    name: ClassVar[str] = "backlog"
    title: ClassVar[str] = "Drain a backlog of a million, one connection"
    max_rounds: ClassVar[int | None] = 1
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, *CALLS, *COSTS)
    variants: ClassVar[tuple[str, ...]] = (f"1 connection, batches of {BATCH}",)
    needs: ClassVar[frozenset[Ability]] = frozenset({"drain"})

    def expected_seconds(self, lab: Lab) -> float:
        """In the first round it is filled."""
        return lab.seconds(20, 5)

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{lab.size(1_000_000, 100_000):,} messages of 200 bytes, the first {lab.seconds(3, 1):g} s of "
            f"draining them; compare with drain_routine{less(self)}"
        )

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:  # noqa: ARG002 - the interface
        """The first seconds."""
        load = Load(lab.size(1_000_000, 100_000), batch=BATCH)
        return drain(lab, contestant, load, 1, lab.seconds(3, 1))


class HalfDelayed(SqlScenario):
    """Half of the messages were delayed, and have become due, or are given back once."""

    name: ClassVar[str] = "half_delayed"
    title: ClassVar[str] = "Half of all messages delayed, or given back once"
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, *COSTS)
    variants: ClassVar[tuple[str, ...]] = ("half delayed", "half retried once")
    needs: ClassVar[frozenset[Ability]] = frozenset({"drain", "retry", "parallel"})

    def describe(self, lab: Lab) -> str:
        """How."""
        count = lab.size(20_000, 4000)
        return (
            f"{count:,} messages by 2 connections in batches of {BATCH}, until the last is finished; either "
            "every second one was enqueued for later, and that has come, or every second one is given back "
            f"once, for another try at once{less(self)}"
        )

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:
        """Delays need more."""
        return variant != "half delayed" or "delay" in contestant.can

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """Until the last is finished."""
        retried = variant != "half delayed"
        load = contestant.load(
            Load(lab.size(20_000, 4000), due_seconds=0 if retried else lab.seconds(8, 3), batch=BATCH)
        )
        count = load.count
        with contestant.place(lab, load) as url:
            contender = (contestant.retry if retried else contestant.drain)(url, BATCH)
            done = work(
                lab,
                contestant,
                contender,
                connections=2,
                seconds=60,
                messages=count,
                patient=True,
            )
            problem = check(contestant, url, count, done, 2 * BATCH)
            if done.messages + done.warmed_up < count:
                problem = (
                    problem or f"{done.messages + done.warmed_up} of {count} were finished within a minute"
                )
            return done.measured(problem=problem)


def drain(
    lab: Lab,
    contestant: SqlContestant,
    load: Load,
    connections: int,
    seconds: float,
    warm_up_seconds: float | None = None,
) -> Measured:
    """Drain a backlog, after a short warm-up; what the clients took must be what the tables miss."""
    load = contestant.load(load)
    with contestant.place(lab, load) as url:
        contender = (
            contestant.grouped(url, load.batch, load.groups)
            if load.groups
            else contestant.drain(url, load.batch)
        )
        done = work(
            lab,
            contestant,
            contender,
            connections=connections,
            seconds=seconds,
            warm_up_seconds=seconds / 20 if warm_up_seconds is None else warm_up_seconds,
        )
        problem = check(contestant, url, load.count, done, connections * load.batch)
        return done.measured(problem=problem)


def _backlog(lab: Lab) -> int:
    return lab.size(200_000, 20_000)


def _seconds(lab: Lab) -> float:
    return lab.seconds(2, 0.5)


def less(scenario: SqlScenario) -> str:
    """Who has a smaller backlog, in words."""
    told = [f"{one.name}: at most {one.most:,}" for one in scenario.contestants if one.most]
    return f" ({', '.join(told)})" if told else ""
