"""The front page's part of the results: one picture, eight rows at most, and where pysqlbox is not first."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.suite.store import P50, P99, RATE

OURS = "pysqlbox"
PLACE = "benchmarks/results"
WIDTH = 118
MOST_ROWS = 8


@dataclass(frozen=True)
class Row:
    """A cell of the results; `better` says which of two values is."""

    title: str
    scenario: str
    variant: str
    value: str
    better: Literal["higher", "lower"] = "higher"


ROWS = (
    Row("messages/s by one worker process", "worker_drain", "1 process", RATE),
    Row("messages/s by two worker processes", "worker_drain", "2 processes", RATE),
    Row("ms to the handler, idle, median", "latency_idle", "1 process", P50, "lower"),
    Row("ms to the handler at 500/s, 99th percentile", "steady", "1 ms, 500/s, 16 workers", P99, "lower"),
    Row("messages/s enqueued one by one", "enqueue_single", "1 connection", RATE),
    Row("messages/s enqueued by the thousand", "enqueue_bulk", "1 connection", RATE),
    Row("messages/s taken and finished by statements", "drain_routine", "1 connection, batches of 500", RATE),
    Row("messages/s in and out, the snapshot held to the end", "held_snapshot", "1 connection", "last_rate"),
)
"""What a reader asks first."""


@dataclass(frozen=True)
class Line:
    """A row with its figures: ours, the best other queue's, and whose that is. Floors are no queues."""

    row: Row
    ours: float
    other: float
    who: str
    commit: str

    @property
    def is_first(self) -> bool:
        """Whether no other queue does better."""
        return self.ours >= self.other if self.row.better == "higher" else self.ours <= self.other


def lines(scenarios: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Those rows that were measured, of us and of another queue."""
    found = []
    for row in ROWS[:MOST_ROWS]:
        there = [
            (result["values"][row.value]["median"], result["contestant"], result.get("commit", ""))
            for scenario in scenarios
            for result in scenario["results"]
            if (scenario["name"], result["variant"]) == (row.scenario, row.variant)
            and row.value in result["values"]
            and not result["floor"]
        ]
        # Ours is what the defaults give; what has to be asked for is in the whole table.
        ours = [each for each in there if each[1] == OURS]
        others = [each for each in there if not each[1].startswith(OURS)]
        if ours and others:
            best = max(others) if row.better == "higher" else min(others)
            found.append(Line(row, ours[0][0], best[0], best[1], ours[0][2]))
    return found


def number(value: float) -> str:
    """As many digits as mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def front_page(told: Mapping[str, Any]) -> str:
    """Picture, table, how often another queue is ahead, and how this was measured."""
    rows = lines(told["scenarios"])
    commits = list(dict.fromkeys(line.commit for line in rows if line.commit))
    text = [
        f"![Draining, latency, and a held snapshot, beside other queues]({PLACE}/suite-plots/headline.png)",
        "",
    ]
    if rows:
        heads = ["", "pysqlbox", "the best other queue", ""] + (["commit"] if len(commits) > 1 else [])
        text += [
            "| " + " | ".join(heads) + " |",
            "|---|---:|---:|---|" + ("---|" if len(commits) > 1 else ""),
        ]
    for line in rows:
        ours, other = number(line.ours), number(line.other)
        cells = [
            line.row.title,
            f"**{ours}**" if line.is_first else ours,
            other if line.is_first else f"**{other}**",
        ]
        cells += [line.who, *([f"`{line.commit}`"] if len(commits) > 1 else [])]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join([*text, "", _wrapped(f"{_not_first(rows)} {_circumstances(told)}"), ""])


def _not_first(rows: Sequence[Line]) -> str:
    where = f"[others are ahead elsewhere too]({PLACE}/suite.md#where-others-were-better)"
    ahead = Counter(line.who for line in rows if not line.is_first)
    if not ahead:
        return f"pysqlbox is ahead in each of these rows; {where}."
    told = " and ".join(f"{who} in {many} of these rows" for who, many in ahead.most_common())
    return f"Behind {told}; {where}."


def _circumstances(told: Mapping[str, Any]) -> str:
    about = told["about"]
    shown = {(row.scenario, row.variant) for row in ROWS}
    counts = [
        result["rounds"]
        for scenario in told["scenarios"]
        for result in scenario["results"]
        if (scenario["name"], result["variant"]) in shown and result["rounds"]
    ]
    fewest, most = min(counts, default=0), max(counts, default=0)
    rounds = f"{most} round{'' if most == 1 else 's'}" if fewest == most else f"{fewest} to {most} rounds"
    server = about.get("server", {})
    settings = [f"{name} {server[name]}" for name in ("fsync", "synchronous_commit") if name in server]
    where = [f"PostgreSQL {server.get('version', '').split(' ')[0]}", *settings]
    where.append(about.get("machine", "").split(",")[0])
    return (
        f"Medians of {rounds} in turn; {', '.join(filter(None, where))}; messages of 200 bytes, empty"
        f" handlers. [suite.md]({PLACE}/suite.md) has commit, versions, machine and all the rest,"
        " [benchmarks](benchmarks/README.md#what-is-compared) what each queue promises; `make bench` measures"
        " again."
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
