"""How long a worker leaves a database alone that does not answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.served_box import ServedBox
from pysqlbox.worker.settings import Settings


@pytest.mark.parametrize("draw", [min, max, random.uniform])
def test_a_worker_is_back_soon_after_its_database_however_long_that_was_away(
    monkeypatch: pytest.MonkeyPatch, draw: Callable[[float, float], float]
) -> None:
    """Within a second, or a tenth of the time: outages in a row must not fall into one another's pauses."""
    began = now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("pysqlbox.worker.served_box.time", clock)
    monkeypatch.setattr("pysqlbox.worker.served_box.random", SimpleNamespace(uniform=draw))
    nowhere: Any = SimpleNamespace()
    with pysqlbox.connect("postgresql://127.0.0.1:1/nowhere") as db:
        box = ServedBox(
            db.outbox, Handlers(), Settings(), topics=None, threads=1, max_attempts=None, store=nowhere
        )
    pauses = []
    while now - began < 300:
        box.retreat()
        pauses.append(round(box.next_poll - now, 6))
        assert pauses[-1] <= max(1.0, 0.1 * (now - began)) + 1e-6
        now = box.next_poll
    assert 0.1 <= pauses[0] <= 0.2
    assert 2.5 <= pauses[-1] <= 5.0
    assert len(pauses) < 300, "a database that is away is asked too often"
