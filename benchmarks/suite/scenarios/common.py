"""What the scenarios at the SQL level share: clients at work, and what becomes of their steps."""

from __future__ import annotations

import math
import statistics
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.queue.contenders import Contender
from benchmarks.queue.pool import Turn, Work
from benchmarks.suite import store
from benchmarks.suite.contestants.base import Ability, SqlContestant
from benchmarks.suite.contestants.floors import CopyTable, SkipLocked, StatusTable
from benchmarks.suite.contestants.pgmq import Pgmq, PgmqArchive
from benchmarks.suite.contestants.pgq import Pgq, Pgque
from benchmarks.suite.contestants.pysqlbox import Pysqlbox, PysqlboxPayloads, PysqlboxSettle
from benchmarks.suite.contestants.tsql import PysqlboxTsql
from benchmarks.suite.runner import Level, Metric, Scenario
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Curve, Measured

RATE = Metric(store.RATE, "throughput", "messages/s")
COSTS = (
    Metric(store.SERVER_CPU, "server CPU", "µs/message", "lower"),
    Metric(store.CLIENT_CPU, "client CPU", "µs/message", "lower"),
    Metric(store.WAL, "WAL", "bytes/message", "lower"),
)
CALLS = (
    Metric(store.CALL_P50, "a call, median", "ms", "lower"),
    Metric(store.CALL_P99, "a call, 99th percentile", "ms", "lower"),
)

CONTESTANTS: tuple[SqlContestant, ...] = (
    Pysqlbox(),
    PysqlboxPayloads(),
    PysqlboxSettle(),
    Pgmq(),
    PgmqArchive(),
    Pgq(),
    Pgque(),
    SkipLocked(),
    StatusTable(),
    CopyTable(),
    PysqlboxTsql(),
)


@dataclass(frozen=True)
class Worked:
    """What clients did together, after they had moved some messages to warm up."""

    turns: Sequence[Turn]
    warmed_up: int
    server_cpu: float | None
    wal_bytes: float | None

    @property
    def messages(self) -> int:
        """How many."""
        return sum(turn.messages for turn in self.turns)

    @property
    def seconds(self) -> float:
        """From the first beginning to the last end."""
        return max(turn.ended for turn in self.turns) - min(turn.began for turn in self.turns)

    def measured(self, more: Mapping[str, float] | None = None, problem: str | None = None) -> Measured:
        """Rate, calls and costs."""
        count, calls = max(self.messages, 1), sorted(self._calls())
        values = {store.RATE: self.messages / self.seconds}
        values[store.CLIENT_CPU] = sum(turn.client_cpu for turn in self.turns) * 1e6 / count
        if self.server_cpu is not None:
            values[store.SERVER_CPU] = self.server_cpu * 1e6 / count
        if self.wal_bytes is not None:
            values[store.WAL] = self.wal_bytes / count
        if calls:
            values[store.CALL_P50] = statistics.median(calls) * 1e3
            values[store.CALL_P99] = calls[min(len(calls) - 1, math.ceil(0.99 * len(calls)) - 1)] * 1e3
        if not self.messages:
            problem = problem or "nothing was moved"
        return Measured({**values, **(more or {})}, self.messages, self.seconds, problem=problem)

    def curve(self, width: float) -> Curve:
        """The rate over time, in parts of so many seconds; the last, which is not whole, is left out.

        What a step moved counts evenly over its time: one that takes longer than a part has no gap before it.
        """
        first = min(turn.began for turn in self.turns)
        counts = [0.0] * max(int(self.seconds / width), 1)
        for turn in self.turns:
            began = turn.began
            for ended, moved in turn.steps:
                if moved > 0:
                    _spread(counts, (began - first) / width, (ended - first) / width, moved)
                    began = ended
        return [((number + 0.5) * width, count / width) for number, count in enumerate(counts)]

    def _calls(self) -> list[float]:
        durations = []
        for turn in self.turns:
            before = turn.began
            for ended, moved in turn.steps:
                if moved:
                    durations.append(ended - before)
                before = ended
        return durations


def work(
    lab: Lab,
    contestant: SqlContestant,
    contender: Contender,
    *,
    connections: int,
    seconds: float,
    messages: int = 2**62,
    patient: bool = False,
    warm_up_seconds: float = 0.0,
) -> Worked:
    """Let clients loop until the time is over, or so many messages are moved, those of the warm-up included.

    Each begins with a step, or as many as take `warm_up_seconds`, that are not measured: connections, plans.
    """
    pool = lab.pool
    try:
        warmed = sum(
            turn.messages
            for turn in pool.turns(Work(contender, seconds=warm_up_seconds), messages, connections)
        )
        with contestant.metered(lab) as cost:
            turns = pool.turns(
                Work(contender, seconds=seconds, patient=patient, traced=True),
                messages - warmed,
                connections,
            )
        pool.leave(contender)
    except BaseException:
        lab.close()  # some clients may be at work still, or gone: the next measurement gets new ones
        raise
    return Worked(turns, warmed, cost.server_cpu if cost else None, cost.wal_bytes if cost else None)


def _spread(counts: list[float], began: float, ended: float, moved: int) -> None:
    """Add what was moved between two moments, in parts, to those that these lie in."""
    for place in range(int(began), min(int(ended), len(counts) - 1) + 1):
        share = min(ended, place + 1) - max(began, place)
        counts[place] += moved * (share / (ended - began) if ended > began else 1.0)


def check(contestant: SqlContestant, url: str, filled: int, done: Worked, in_hand: int) -> str | None:
    """Whether the tables agree with the clients; `in_hand`: that many may be taken and not finished yet."""
    finished = done.messages + done.warmed_up
    remaining = contestant.count_remaining(url)
    if remaining is None:
        return None
    allowed = in_hand if contestant.keeps_in_hand else 0
    gone = filled - remaining
    if finished - allowed <= gone <= finished:
        return None
    return f"clients finished {finished}, the tables say {gone}"


class SqlScenario(Scenario[SqlContestant]):
    """Contestants that can do what it needs."""

    level: ClassVar[Level] = "sql"
    needs: ClassVar[frozenset[Ability]]

    @property
    def contestants(self) -> Sequence[SqlContestant]:
        """Those that can."""
        return [one for one in CONTESTANTS if self.needs <= one.can]

    @abstractmethod
    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """One contestant, once."""


def connections_of(variant: str) -> int:
    """The number of connections that a variant begins with."""
    return int(variant.split()[0])


def by(count: int) -> str:
    """So many connections, in words."""
    return f"{count} connection{'s' if count > 1 else ''}"
