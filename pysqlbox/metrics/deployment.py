"""A deployment's figures as families of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pysqlbox.messages import BoxMetrics
from pysqlbox.metrics.exposition import Families, Labels
from pysqlbox.metrics.topics import Chosen, longest, summed

__all__ = ["add_boxes"]

_Together = Callable[[Iterable[float | None]], float]

#: Field, metric, what several topics have together, help.
_BY_TOPIC: tuple[tuple[str, str, _Together, str], ...] = (
    ("ready", "ready_messages", summed, "Messages that could be claimed now."),
    ("scheduled", "scheduled_messages", summed, "Messages that are not due yet."),
    ("in_flight", "in_flight_messages", summed, "Messages under a lease."),
    ("done", "done_messages", summed, "Messages that are done and not cleaned up yet."),
    ("dead", "dead_messages", summed, "Messages that were given up, have expired or were cancelled."),
    ("given_up", "given_up_messages", summed, "Dead messages that neither expired nor were cancelled."),
    ("expired_leases", "expired_leases", summed, "Leases that have run out and that nobody took back yet."),
    (
        "oldest_ready_seconds",
        "oldest_ready_age_seconds",
        longest,
        "For how long the oldest message waits that could be claimed now; 0 without any.",
    ),
    (
        "oldest_dead_seconds",
        "oldest_dead_age_seconds",
        longest,
        "How long ago the oldest message was given up that is still there; 0 without any.",
    ),
)
_BY_BOX = (
    ("blocked_groups", "blocked_groups", "FIFO groups whose head holds up others that are due."),
    ("longest_blocked_seconds", "longest_blocked_seconds", "For how long the longest of them is held up."),
    ("upkeep_seconds", "upkeep_age_seconds", "How long ago somebody last cleaned up, or the box was made."),
    ("reap_seconds", "reap_age_seconds", "How long ago somebody last took back leases, or the box was made."),
)


def add_boxes(
    families: Families,
    rows: Sequence[BoxMetrics],
    chosen: dict[str, Chosen],
    labels: Labels,
    limit: int | None,
) -> None:
    """The figures of every box; ``chosen`` remembers the topics that are shown, box by box."""
    topics: dict[str, list[BoxMetrics]] = {}
    for row in rows:
        own = topics.setdefault(row.box, [])
        if row.topic is not None:
            own.append(row)
            continue
        for field, name, text in _BY_BOX:
            family = families.get(f"pysqlbox_{name}", "gauge", text)
            family.add(getattr(row, field) or 0, (*labels, ("box", row.box)))
    for box, own in topics.items():
        weights = {str(row.topic): row.ready + row.scheduled + row.in_flight + row.dead for row in own}
        of_box = chosen.setdefault(box, Chosen(limit))
        of_box.limit = limit
        names = of_box.label(weights)
        together: dict[str, list[BoxMetrics]] = {}
        for row in own:
            together.setdefault(names[str(row.topic)], []).append(row)
        for field, name, combine, text in _BY_TOPIC:
            family = families.get(f"pysqlbox_{name}", "gauge", text)
            for topic, members in together.items():
                value = combine(getattr(member, field) for member in members)
                family.add(value, (*labels, ("box", box), ("topic", topic)))
