"""When a worker that sleeps gets up by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox.worker import alarm as module
from pysqlbox.worker.alarm import alarm
from pysqlbox.worker.served_box import NEVER

NOW = datetime(2026, 1, 2, tzinfo=UTC)
POLL = 5.0


def after(seconds: float) -> datetime:
    """By the server's clock, which nobody else's has to agree with."""
    return NOW + timedelta(seconds=seconds)


class Connection:
    """What the routines answer."""

    def __init__(
        self, due: datetime | None = None, fires: datetime | None = None, is_due: bool = False
    ) -> None:
        self.answers: dict[str, dict[str, object]] = {
            "schedule_next": {"now_at": NOW, "next_at": fires, "is_due": is_due},
            "next_due": {"due_at": due},
        }
        self.asked: list[str] = []

    def call(self, routine: str, _arguments: Any) -> list[dict[str, object]]:
        self.asked.append(routine)
        return [self.answers[routine.split("_", 1)[1]]]


@pytest.mark.parametrize(
    ("kind", "due", "fires", "is_due", "expected"),
    [
        ("outbox", after(60), None, False, 60.0),
        ("outbox", after(60), after(30), False, 30.0),
        ("outbox", after(20), after(30), False, 20.0),
        ("outbox", None, after(30), False, 30.0),
        ("outbox", after(60), after(30), True, POLL),
        ("outbox", after(1), None, False, POLL),
        ("outbox", after(-60), None, False, POLL),
        ("outbox", None, None, False, NEVER),
        ("inbox", after(60), after(30), True, 60.0),
        ("inbox", None, after(30), True, NEVER),
    ],
)
def test_a_box_is_asked_again_when_something_falls_due(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    due: datetime | None,
    fires: datetime | None,
    is_due: bool,
    expected: float,
) -> None:
    """A message, a lease, or a schedule, which only outboxes have; but no more often than it is polled."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    box: Any = SimpleNamespace(name="mine", queue=SimpleNamespace(kind=kind), poll_seconds=POLL)
    connection: Any = Connection(due, fires, is_due)
    assert alarm(box, connection) == (NEVER if expected == NEVER else 1000.0 + expected)
    clock = "mine" if kind == "outbox" else "outbox"
    assert connection.asked == [f"{clock}_schedule_next", "mine_next_due"]
