"""The runner, and what it runs: scenarios and contestants.

    Contestant   one way to do the work: a name, where its settings come from, what it does with finished
                 messages. `prepare()` installs or checks what it needs, once a run, and raises
                 UnavailableError, whose message is told in the results as the reason for leaving it out.
    Scenario     one question. It has a name (`drain_routine`), a title for pages and plots, the metrics
                 that matter with their units (the first is the headline), variants ("1 connection"), and
                 contestants. `measure(lab, contestant, variant)` measures one contestant once, on a private
                 copy of a database (`lab.database(name, build)`), and answers a store.Measured. It raises
                 UnavailableError for what a contestant cannot do, and anything else for a failure, which is
                 kept as the measurement's `problem`.
    Runner       goes round by round; in a round through scenarios and their variants; in each the
                 contestants take turns, each round with another one first. What is in the store already is
                 not measured again. What would probably not be ready at the time limit is not begun.

A scenario's module has SCENARIOS, a tuple of them; scenarios/__init__.py puts those together. Names of
contestants are those of the results: the same queue has the same name in all scenarios of a level.
"""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from benchmarks.common.machine import now
from benchmarks.peers.environments import UnavailableError
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Key, Measured, Store

__all__ = ["Contestant", "Level", "Metric", "Plan", "Runner", "Scenario", "UnavailableError"]

Level = Literal["sql", "worker"]


@dataclass(frozen=True)
class Metric:
    """A value that a scenario tells: its name in `Measured.values`, words for it, unit, and what is good."""

    name: str
    title: str
    unit: str
    better: Literal["higher", "lower"] = "higher"


class Contestant(ABC):
    """One way to do the work.

    `source`: where its settings come from; `keeps`: what becomes of a finished message; `floor`: no queue,
    but what the machine can do with less promised.
    """

    name: str
    source: str
    keeps: str
    floor: bool = False

    @abstractmethod
    def prepare(self, lab: Lab) -> dict[str, str]:
        """Get what it needs; answers its versions. Raises UnavailableError."""


C = TypeVar("C", bound=Contestant)


class Scenario(ABC, Generic[C]):
    """One question.

    `max_rounds`: what takes hours is asked in the last rounds only. `opt_in`: only when named, or asked for
    by an option.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    level: ClassVar[Level]
    metrics: ClassVar[tuple[Metric, ...]]
    variants: ClassVar[tuple[str, ...]]
    max_rounds: ClassVar[int | None] = None
    opt_in: ClassVar[bool] = False

    @property
    @abstractmethod
    def contestants(self) -> Sequence[C]:
        """Who takes part."""

    @abstractmethod
    def measure(self, lab: Lab, contestant: C, variant: str) -> Measured:
        """One contestant, once."""

    def takes_part(self, contestant: C, variant: str) -> bool:  # noqa: ARG002 - for subclasses to decide
        """Whether the contestant has this variant at all."""
        return True

    def expected_seconds(self, lab: Lab) -> float:  # noqa: ARG002 - for subclasses that know
        """About how long a measurement takes, as long as none has been taken."""
        return 4.0

    def describe(self, lab: Lab) -> str:  # noqa: ARG002 - for subclasses to tell
        """What is done, with numbers, in a sentence or two, for the results."""
        return ""


@dataclass(frozen=True)
class Plan:
    """What to run. `only`: names of scenarios, of contestants, or scenario/contestant; empty: all.

    `variants`: of each scenario these; empty: all.
    """

    rounds: int
    only: tuple[str, ...] = ()
    level: Level | None = None
    minutes: float | None = None
    variants: tuple[str, ...] = ()

    def wants(self, scenario: Scenario[Any], contestant: Contestant) -> bool:
        """Whether a pair is asked for."""
        if self.level and scenario.level != self.level:
            return False
        if scenario.opt_in and not any(word.partition("/")[0] == scenario.name for word in self.only):
            return False
        return not self.only or any(self._matches(word, scenario, contestant) for word in self.only)

    @staticmethod
    def _matches(word: str, scenario: Scenario[Any], contestant: Contestant) -> bool:
        first, slash, second = word.partition("/")
        if slash:
            return first == scenario.name and second == contestant.name
        return word in (scenario.name, contestant.name)


@dataclass
class Runner:
    """Measures what a plan asks for and the store does not have yet; `measured`: the scenarios of those.

    `stopping` is asked after each measurement: one during which somebody wanted the run to stop is not kept.
    """

    scenarios: Sequence[Scenario[Any]]
    lab: Lab
    store: Store
    plan: Plan
    progress: Callable[[str], None]
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    stopping: Callable[[], bool] = bool
    _took: dict[str, list[float]] = field(default_factory=dict)

    def run(self) -> bool:
        """All of it, or until the time is over; answers whether all was measured."""
        began = time.monotonic()
        self._prepare()
        turns = list(self._turns())
        todo = [turn for turn in turns if self._key(*turn) not in self.store]
        self.progress(f"{len(turns)} measurements, {len(turns) - len(todo)} of them taken before")
        for number, turn in enumerate(todo):
            left = [self._expected(scenario) for scenario, *_ in todo[number:]]
            ending = time.monotonic() - began + left[0]
            if self.plan.minutes is not None and ending > self.plan.minutes * 60:
                self.progress(f"the time is over: {len(left)} measurements left for --resume")
                return False
            self._take(turn, f"{number + 1}/{len(todo)}, about {_duration(sum(left))} left")
        return True

    def _expected(self, scenario: Scenario[Any]) -> float:
        took = self._took.get(scenario.name)
        return sum(took) / len(took) if took else scenario.expected_seconds(self.lab)

    def _prepare(self) -> None:
        """Every contestant once; those that cannot be had are out, with the reason."""
        seen: set[tuple[str, str]] = set()
        for scenario in self.scenarios:
            for contestant in scenario.contestants:
                if (scenario.level, contestant.name) in seen or not self.plan.wants(scenario, contestant):
                    continue
                seen.add((scenario.level, contestant.name))
                name = f"{scenario.level}: {contestant.name}"
                try:
                    self.versions[name] = contestant.prepare(self.lab)
                except Exception as error:  # a venv, npm, another server: each has errors of its own
                    if self.stopping():
                        raise KeyboardInterrupt from error
                    kind = "" if isinstance(error, UnavailableError) else f"{type(error).__name__}: "
                    self.missing[name] = kind + _reason(str(error))
                    self.progress(f"{name} is left out: {self.missing[name]}")

    def _turns(self) -> Iterator[tuple[Scenario[Any], str, Contestant, int]]:
        for number in range(self.plan.rounds):
            for scenario in self.scenarios:
                if scenario.max_rounds is not None and number < self.plan.rounds - scenario.max_rounds:
                    continue
                there = [
                    contestant
                    for contestant in scenario.contestants
                    if self.plan.wants(scenario, contestant)
                    and f"{scenario.level}: {contestant.name}" not in self.missing
                ]
                for variant in scenario.variants:
                    if self.plan.variants and variant not in self.plan.variants:
                        continue
                    able = [one for one in there if scenario.takes_part(one, variant)]
                    start = number % max(len(able), 1)
                    for contestant in [*able[start:], *able[:start]]:
                        yield scenario, variant, contestant, number

    @staticmethod
    def _key(scenario: Scenario[Any], variant: str, contestant: Contestant, number: int) -> Key:
        return Key(scenario.name, variant, contestant.name, number)

    def _take(self, turn: tuple[Scenario[Any], str, Contestant, int], place: str) -> None:
        """One measurement, kept and told."""
        scenario, variant, contestant, round_number = turn
        began = time.monotonic()
        try:
            measured = scenario.measure(self.lab, contestant, variant)
        except UnavailableError as error:
            measured = Measured({}, problem=" ".join(str(error).split()))
        except Exception as error:
            if self.stopping():  # a driver may have made its own exception of it
                raise KeyboardInterrupt from error
            self.lab.close()  # its clients may have ended, or wait for what never comes
            self.progress(traceback.format_exc())
            measured = Measured({}, problem=f"{type(error).__name__}: {' '.join(str(error).split())[-500:]}")
        if self.stopping():
            raise KeyboardInterrupt
        self.store.add(self._key(*turn), measured)
        self.measured.add(scenario.name)
        took = time.monotonic() - began
        self._took.setdefault(scenario.name, []).append(took)
        self.progress(
            f"[{place}] round {round_number + 1}, {scenario.name}, {variant}, "
            f"{contestant.name}: {_told(scenario, measured)} ({took:.1f} s)"
        )

    def about(self) -> dict[str, Any]:
        """What the results tell of this run beside the server and the machine."""
        return {
            "date": now(),
            "rounds": self.plan.rounds,
            "quick": self.lab.quick,
            "versions": self.versions,
            "missing": self.missing,
        }


def _reason(text: str) -> str:
    """In one line, without folders, and of what pip says the error alone."""
    what, failed, said = " ".join(text.split()).partition(" failed: ")
    command, _, rest = what.partition(" ")
    what = f"{Path(command).name} {rest}" if failed and command.startswith("/") else what
    return f"{what}{failed}{said.rpartition('ERROR: ')[2]}"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _told(scenario: Scenario[Any], measured: Measured) -> str:
    if measured.problem:
        return measured.problem
    headline = scenario.metrics[0]
    value = measured.values.get(headline.name)
    return "nothing" if value is None else f"{value:,.4g} {headline.unit}"
