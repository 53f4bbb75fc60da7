"""How often a store without work is looked after, with a clock that the test sets and no database."""

from __future__ import annotations

import itertools
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox.stores import care
from pysqlbox.stores.care import StoreCare
from pysqlbox.worker.caretaker import Chore

#: A worker that has not said for so long that it is there is not shown.
SHOWN = 600.0


@pytest.mark.parametrize("stretch", [1.0, 20.0, 200.0])
def test_a_worker_says_that_it_is_there_before_it_would_be_forgotten(
    monkeypatch: pytest.MonkeyPatch, stretch: float
) -> None:
    """However many stores it has, also in those without work."""
    now = 10_000.0
    clock = SimpleNamespace(monotonic=lambda: now, time=lambda: now)
    monkeypatch.setattr("pysqlbox.stores.care.time", clock)
    monkeypatch.setattr("pysqlbox.worker.caretaker.time", clock)
    box = SimpleNamespace(name="outbox", last_work=now - 1)
    store: Any = SimpleNamespace(boxes=[box], log=None)
    said: list[float] = []
    connection: Any = SimpleNamespace(call=lambda *_: said.append(now))
    chore = Chore("report", "outbox", 20.0, "worker_report", {}, by_all=True)
    found = StoreCare(SimpleNamespace(), store, uuid.uuid4(), [chore], [], stretch)  # type: ignore[arg-type]  # not asked
    for _ in range(5000):
        if found.prepare(now):
            found.step(connection)
        now = max(found.next_at, now + care.CHECK_SECONDS)
        if now > 10_000.0 + 10 * SHOWN:
            break
    pauses = [after - before for before, after in itertools.pairwise(said)]
    assert len(said) > 9
    assert max(pauses) < SHOWN
    assert min(pauses[1:]) > 0.8 * SHOWN, "and hardly more often"
