"""The connections of one deployment that a worker's threads share: who gets them, when they are closed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker import served_store
from pysqlbox.worker.served_store import ServedStore


class Connection:
    """One that can be closed."""

    def __init__(self, limit: float | None = None) -> None:
        self.limit = limit
        self.closed = False
        self.calls = SimpleNamespace(meanwhile=None)

    def close(self) -> None:
        """As a worker's connection."""
        self.closed = True


class Opened:
    """A store that keeps so many connections, and all that it has opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kept: int = 2) -> None:
        self.connections: list[Connection] = []
        self.transactions = Connection()
        monkeypatch.setattr(served_store, "Database", lambda _db: SimpleNamespace(open=self._open))
        db: Any = None
        transactions: Any = self.transactions
        self.store = ServedStore(db, transactions, kept)

    def _open(self, limit: float | None = None) -> Connection:
        self.connections.append(Connection(limit))
        return self.connections[-1]

    @property
    def closed(self) -> list[bool]:
        """Which of them are closed."""
        return [each.closed for each in self.connections]


def test_a_connection_is_used_again_after_errors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It mends itself; one that did not come back would be opened anew with every failure."""
    it = Opened(monkeypatch)
    with pytest.raises(pysqlbox.DatabaseUnavailable), it.store.connection():
        raise pysqlbox.DatabaseUnavailable("gone")
    with it.store.connection():
        pass
    assert it.closed == [False]


def test_no_more_are_kept_than_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Opened(monkeypatch, kept=2)
    with it.store.connection(), it.store.connection(), it.store.connection():
        assert it.closed == [False] * 3
    assert it.closed == [True, False, False]


def test_at_the_end_the_free_are_closed_and_the_others_as_they_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = Opened(monkeypatch)
    with it.store.connection():
        with it.store.connection():
            pass
        it.store.close()
        assert it.closed == [False, True]
        assert it.transactions.closed
    assert it.closed == [True, True]


def test_what_comes_back_while_the_others_are_closed_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever brings it has seen the store open."""
    it = Opened(monkeypatch)

    class Free(list[Any]):
        """Where the end comes between the look and the return."""

        def append(self, connection: Any) -> None:
            it.store.close()
            super().append(connection)

    it.store._free = Free()
    with it.store.connection():
        pass
    assert it.closed == [True]


def test_the_lease_keeper_has_one_of_its_own_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Opened(monkeypatch)
    it.store.close_helper()  # it has asked nothing

    def meanwhile() -> None:
        """Nothing to do."""

    for _ in range(2):
        with it.store.helper_connection(5.0, meanwhile) as connection:
            assert connection.calls.meanwhile is meanwhile
    assert [each.limit for each in it.connections] == [5.0]
    it.store.close()
    assert it.closed == [False], "it settles what the end leaves"
    it.store.close_helper()
    assert it.closed == [True]
