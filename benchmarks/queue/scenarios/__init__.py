"""The scenarios by name; each makes a database of its own and answers with its figures and verdicts."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.queue.figures import Outcome
from benchmarks.queue.scenarios.backlog import backlog, foreign_topics
from benchmarks.queue.scenarios.context import Context
from benchmarks.queue.scenarios.drain import claim_ack, held_snapshot
from benchmarks.queue.scenarios.enqueue import enqueue
from benchmarks.queue.scenarios.groups import groups
from benchmarks.queue.scenarios.joins import joins
from benchmarks.queue.scenarios.stats import stats

Scenario = Callable[[Context], Outcome]

SCENARIOS: dict[str, Scenario] = {
    "claim_ack": claim_ack,
    "held_snapshot": held_snapshot,
    "backlog": backlog,
    "foreign_topics": foreign_topics,
    "groups": groups,
    "enqueue": enqueue,
    "stats": stats,
    "joins": joins,
}
