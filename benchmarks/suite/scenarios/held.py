"""A queue at work while somebody holds a transaction open, so that dead rows cannot go: the rate over time.

A snapshot keeps the rows that were deleted since. A transaction that has written keeps them too, and also
keeps the server's oldest running transaction where it was, for all its databases.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.queue.contenders import Contender
from benchmarks.queue.scenarios.drain import held
from benchmarks.suite.contestants.base import Ability, Load, Route, SqlContestant, connect
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import COSTS, RATE, SqlScenario, work
from benchmarks.suite.scenarios.cycle import Cycle, cycle, standing
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

PAYLOAD, RECORDS, BATCH = 200, 500, 50
FIRST, LAST = "first_rate", "last_rate"
KEPT = "kept"
PARTS = 60
"""Into so many parts the time is cut; a tenth of them are the beginning, a tenth the end."""
SAME, OTHER = "same database", "other database"
ROUTES = {
    route.name: route
    for route in (
        Route("priority 5", "priorities", priority=5),
        Route("priority -5", "priorities", priority=-5),
        Route("one topic paused", "pausing", others="invoices", paused=True),
        Route("one hot group", "groups", group="customer 1"),
        Route("limited to topics", "topics", topics=("orders", "returns"), asked=True, others="invoices"),
    )
}


class Held(SqlScenario):
    """The rate over time."""

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(LAST, "throughput in the last tenth", "messages/s"),
        Metric(FIRST, "throughput in the first tenth", "messages/s"),
        Metric(KEPT, "last tenth of first", ""),
        RATE,
        *COSTS,
    )
    needs: ClassVar[frozenset[Ability]] = frozenset({"bulk", "drain"})

    def expected_seconds(self, lab: Lab) -> float:
        """The time that it is followed, and a moment."""
        return self.seconds(lab) + 5

    def seconds(self, lab: Lab) -> float:
        """How long it is followed."""
        return lab.seconds(lab.held_seconds, 4)

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:  # noqa: ARG002 - the interface
        """The transaction is held by a connection to PostgreSQL."""
        return contestant.family != "pysqlbox_T-SQL"


class HeldSnapshot(Held):
    """Of a transaction that only reads."""

    name: ClassVar[str] = "held_snapshot"
    max_rounds: ClassVar[int | None] = 2
    title: ClassVar[str] = "In and out under a snapshot that is held open"
    variants: ClassVar[tuple[str, ...]] = ("1 connection",)

    def describe(self, lab: Lab) -> str:
        """How."""
        return f"{_done(self.seconds(lab))}, while a read-only transaction keeps its snapshot"

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:  # noqa: ARG002 - the interface
        """With the snapshot from before the first message."""
        with contestant.place(lab, standing(PAYLOAD, RECORDS)) as url, held(url):
            return follow(lab, contestant, cycle(contestant, url, PAYLOAD, RECORDS, BATCH), self.seconds(lab))


class HeldWriter(Held):
    """Of a transaction that has written, and is idle."""

    name: ClassVar[str] = "held_writer"
    max_rounds: ClassVar[int | None] = 1
    title: ClassVar[str] = "In and out beside a writing transaction that is left open"
    variants: ClassVar[tuple[str, ...]] = (SAME, OTHER)

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{_done(self.seconds(lab))}, while a transaction that has inserted a row into a table of its "
            "own stays open and idle, in the same database or in another one of the server"
        )

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """With the row written before the first message."""
        with contextlib.ExitStack() as stack:
            url = stack.enter_context(contestant.place(lab, standing(PAYLOAD, RECORDS)))
            elsewhere = lab.database("bystander", lambda _: None) if variant == OTHER else None
            stack.enter_context(writer(stack.enter_context(elsewhere) if elsewhere else url))
            return follow(lab, contestant, cycle(contestant, url, PAYLOAD, RECORDS, BATCH), self.seconds(lab))


class HeldPaths(Held):
    """Of a transaction that only reads, beside messages that do not go the plain way."""

    name: ClassVar[str] = "held_paths"
    max_rounds: ClassVar[int | None] = 1
    title: ClassVar[str] = "Priorities, a pause, a group, topics under a held snapshot"
    variants: ClassVar[tuple[str, ...]] = tuple(ROUTES)

    def seconds(self, lab: Lab) -> float:
        """Half as long: there are five of them."""
        return super().seconds(lab) / 2

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{_done(self.seconds(lab))}, while a read-only transaction keeps its snapshot; all messages "
            "have the same priority, or are in one FIFO group, or every second one of the backlog is of a "
            "topic that is paused, or that claims do not ask for, which name two others"
        )

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:
        """Who has the notion."""
        return super().takes_part(contestant, variant) and ROUTES[variant].needs in contestant.can

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """With the snapshot from before the first message."""
        route = ROUTES[variant]
        plain = standing(PAYLOAD, RECORDS)
        load = Load(plain.count, plain.payload, batch=plain.batch, route=route)
        with contestant.place(lab, load) as url, held(url):
            contender = Cycle(
                contestant.name,
                url,
                contestant.route_bulk(url, PAYLOAD, RECORDS, route),
                contestant.route_drain(url, BATCH, route),
            )
            return follow(lab, contestant, contender, self.seconds(lab))


@contextlib.contextmanager
def writer(url: str) -> Iterator[None]:
    """An idle transaction that has written a row; it keeps no snapshot, but is running."""
    with connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS public.bystander (n integer NOT NULL)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO public.bystander (n) VALUES (1)")
        yield
        connection.execute("ROLLBACK")


def follow(lab: Lab, contestant: SqlContestant, contender: Contender, seconds: float) -> Measured:
    """One connection at work for the whole time: the rate over time, its beginning and its end."""
    done = work(lab, contestant, contender, connections=1, seconds=seconds)
    curve = done.curve(seconds / PARTS)
    tenth = max(len(curve) // 10, 1)
    first = statistics.mean(rate for _, rate in curve[:tenth])
    last = statistics.mean(rate for _, rate in curve[-tenth:])
    measured = done.measured({FIRST: first, LAST: last, KEPT: last / max(first, 1e-9)})
    return Measured(measured.values, measured.messages, measured.seconds, {"rate": curve}, measured.problem)


def _done(seconds: float) -> str:
    return (
        f"{seconds:g} s of {RECORDS} messages put in by one call, taken out in batches of {BATCH} from "
        "a backlog of 20000"
    )
