"""What a queue leaves on the disk beside an open transaction, and what of it goes afterwards."""

from __future__ import annotations

import contextlib
import time
from typing import ClassVar

import psycopg

from benchmarks.queue.scenarios.drain import held
from benchmarks.suite.contestants.base import Ability, SqlContestant
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import COSTS, RATE, SqlScenario, work
from benchmarks.suite.scenarios.cycle import cycle, standing
from benchmarks.suite.scenarios.held import writer
from benchmarks.suite.scenarios.sustained import Keeper
from benchmarks.suite.server import Lab
from benchmarks.suite.store import SIZE, Measured

RECORDS, BATCH = 500, 50
NOTHING, SNAPSHOT, WRITER = "nothing held", "snapshot held", "writer held"
GROWN, AFTER, DEAD, DEAD_AFTER = "grown_bytes", "after_bytes", "dead_rows", "dead_rows_after"
DEAD_ROWS = "SELECT coalesce(sum(s.n_dead_tup), 0)::bigint FROM pg_stat_user_tables AS s"


class Disk(SqlScenario):
    """Bytes and dead rows by message."""

    name: ClassVar[str] = "disk"
    title: ClassVar[str] = "What stays on the disk beside an open transaction"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(GROWN, "tables grew by", "bytes/message", "lower"),
        Metric(AFTER, "and were, a while after, bigger by", "bytes/message", "lower"),
        Metric(DEAD, "dead rows at the end", "rows/message", "lower"),
        Metric(DEAD_AFTER, "a while after", "rows/message", "lower"),
        RATE,
        *COSTS,
    )
    variants: ClassVar[tuple[str, ...]] = (NOTHING, SNAPSHOT, WRITER)
    max_rounds: ClassVar[int | None] = 1
    opt_in: ClassVar[bool] = True
    needs: ClassVar[frozenset[Ability]] = frozenset({"bulk", "drain"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{_seconds(lab):g} s by one connection, {RECORDS} messages put in by a call, taken out "
            f"in batches of {BATCH}, with upkeep; then nobody holds anything, and upkeep and vacuum have "
            f"{_afterwards(lab):g} s. pysqlbox keeps for a minute what is done."
        )

    def expected_seconds(self, lab: Lab) -> float:
        """Both times, and a moment."""
        return _seconds(lab) + _afterwards(lab) + 6

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:  # noqa: ARG002 - the interface
        """Sizes are read from PostgreSQL; bare tables and archives that nobody cleans up only grow."""
        return contestant.name in ("pysqlbox", "pysqlbox settle", "pgmq", "pgq", "pgque", "status column")

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """The transaction is open from before the first message until after the last."""
        with contestant.place(lab, standing(200, RECORDS)) as url:
            before = sum(contestant.sizes(url).values())
            contender = cycle(contestant, url, 200, RECORDS, BATCH)
            with Keeper(contestant, url, min(10.0, _seconds(lab) / 4)) as keeper:
                with _beside(url, variant):
                    done = work(lab, contestant, contender, connections=1, seconds=_seconds(lab))
                    grown, dead = sum(contestant.sizes(url).values()) - before, _dead(url)
                time.sleep(_afterwards(lab))
            after, dead_after = sum(contestant.sizes(url).values()) - before, _dead(url)
        count = max(done.messages, 1)
        values = {
            GROWN: grown / count,
            AFTER: after / count,
            DEAD: dead / count,
            DEAD_AFTER: dead_after / count,
        }
        measured = done.measured(values, keeper.problem)
        curves = {name: curve for name, curve in keeper.curves().items() if name == SIZE}
        return Measured(measured.values, measured.messages, measured.seconds, curves, measured.problem)


def _beside(url: str, variant: str) -> contextlib.AbstractContextManager[object]:
    if variant == SNAPSHOT:
        return held(url)
    return writer(url) if variant == WRITER else contextlib.nullcontext()


def _dead(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        row = connection.execute(DEAD_ROWS).fetchone()
    return int(row[0]) if row else 0


def _seconds(lab: Lab) -> float:
    return lab.seconds(lab.held_seconds, 3)


def _afterwards(lab: Lab) -> float:
    return lab.seconds(60, 1)
