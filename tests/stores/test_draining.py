"""What a drain of many stores may not overlook."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pysqlbox import Stores
from pysqlbox.stores import keeper
from pysqlbox.worker.database_postgres import PostgresConnection
from tests.stores.support import Seen, fill

pytestmark = pytest.mark.dialect("postgres")
LONG = 3.0
"""How long a store keeps its answer back; what it is taken for meanwhile takes a tenth of that."""


def test_a_store_that_is_long_about_a_claim_is_waited_for(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread counts as hanging, and another one takes its place; yet it brings messages in the end."""
    monkeypatch.setattr(keeper, "SLOW_SECONDS", LONG / 10)
    made = fill(stores.get("a"), 1)
    drained, kept_back = threading.Event(), threading.Event()
    real = PostgresConnection.settle

    def settle(self: Any, *arguments: Any) -> list[Any]:
        messages = real(self, *arguments)
        if messages and not kept_back.is_set():
            kept_back.set()
            drained.wait(LONG)
        return messages

    monkeypatch.setattr(PostgresConnection, "settle", settle)
    seen = Seen()
    worker = stores.worker(threads=2, poll_seconds=0.05)
    worker.add_handler("t", seen)
    handled = worker.drain(60)
    drained.set()
    assert kept_back.is_set()
    assert handled == 1
    assert seen.ids == {"a": made}
