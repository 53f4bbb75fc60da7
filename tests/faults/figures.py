"""What a fault test has counted, and the table that is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """The account of one load after one kind of fault."""

    fault: str
    engine: str
    faults: int = 0
    seconds: float = 0
    sent: int = 0
    """Messages whose enqueue the database confirmed."""
    settled: int = 0
    """Messages whose ack the database confirmed, in the load and in what was left afterwards."""
    unanswered: int = 0
    """Commits of which the client never heard the end."""
    lost: list[str] = field(default_factory=list)
    """Confirmed messages that nobody was ever handed to the end."""
    doubled: list[str] = field(default_factory=list)
    """Messages that came again after their ack was confirmed, or took effect twice."""
    phantoms: list[str] = field(default_factory=list)
    """Messages of transactions that never were."""
    disordered: list[str] = field(default_factory=list)
    """Groups whose messages took effect in another order than they were sent in."""
    excused: int | None = None
    """Confirmed transactions that an asynchronous standby did not have: not lost by the queue, but gone."""

    def check(self) -> None:
        """Fails unless lost 0, doubled 0, nothing from nowhere and every group in order."""
        wrong = {
            name: (len(found), found[:5])
            for name in ("lost", "doubled", "phantoms", "disordered")
            if (found := getattr(self, name))
        }
        assert not wrong, f"{self.fault} on {self.engine}: {wrong}"
        assert self.settled >= self.sent - (self.excused or 0)


_HEAD = ("fault", "engine", "faults", "load held (s)", "sent", "messages/s", "no answer", "lost", "doubled")


def table(all_figures: Sequence[Figures]) -> list[str]:
    """The lines of a Markdown table."""
    rows = [_HEAD, ("---",) * 2 + ("---:",) * (len(_HEAD) - 2)]
    for each in all_figures:
        lost = str(len(each.lost))
        if each.excused is not None:
            lost += f" (and {each.excused} that the standby never had)"
        rate = f"{each.sent / each.seconds:,.0f}" if each.seconds else ""
        rows.append(
            (
                each.fault,
                each.engine,
                str(each.faults),
                f"{each.seconds:.0f}",
                f"{each.sent:,}",
                rate,
                str(each.unanswered),
                lost,
                str(len(each.doubled)),
            )
        )
    return ["| " + " | ".join(row) + " |" for row in rows]
