"""The budget of connections to a server: when it is too small, and when it only looks so."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

import pysqlbox
from pysqlbox.stores import run, servers
from pysqlbox.stores.run import COMPLAIN_SECONDS, CROWDED_SECONDS, StoresRun
from pysqlbox.stores.servers import BUSY_SECONDS, ServedDatabase, Server


class World:
    """A server with databases, all of which have messages all the time; nobody connects to it."""

    def __init__(self, budget: int, databases: int) -> None:
        self.now = 1000.0
        self.server = Server("postgresql db.example:5432", budget)
        for number in range(databases):
            db = pysqlbox.connect(f"postgresql://nobody@127.0.0.1:1/t{number}")
            self.server.databases[db.target.dsn] = ServedDatabase(self.server, db)
        self.told: list[str] = []
        self._run = SimpleNamespace(_list_servers=lambda: [self.server], _complain_at={}, _log=logging.root)

    def monotonic(self) -> float:
        """The time."""
        return self.now

    def serve(self, seconds: float, *, at_once: int = 2) -> None:
        """Two threads talk to each database in turn, ten databases a second."""
        until = self.now + seconds
        while self.now < until:
            for database in self.server.databases.values():
                lent = [self.server.lend(database) for _ in range(at_once)]
                for each in lent:
                    each.__enter__()
                database.worked_at = self.now
                for each in lent:
                    each.__exit__(None, None, None)
                self.now += 0.1
            StoresRun._complain(cast(Any, self._run))


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the world whose time it is."""

    def made(budget: int, databases: int) -> World:
        world = World(budget, databases)
        monkeypatch.setattr(servers, "time", world)
        monkeypatch.setattr(run, "time", world)
        return world

    return made


def test_a_budget_that_suffices_is_not_called_too_small(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Though databases take each other's second connections."""
    world = make(8, 6)
    world.serve(5 * CROWDED_SECONDS)
    assert world.server.open == 8
    assert world.server.crowded_seconds == 0
    assert caplog.messages == []


def test_a_start_with_much_to_do_everywhere_is_no_complaint(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = make(8, 12)
    world.serve(CROWDED_SECONDS - 2)
    assert 0 < world.server.crowded_seconds < CROWDED_SECONDS
    world.now += BUSY_SECONDS + 1
    assert world.server.crowded_seconds == 0
    world.serve(CROWDED_SECONDS - 2)
    assert caplog.messages == []


def test_a_budget_that_is_too_small_is_told_of_now_and_then(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = make(8, 12)
    world.serve(CROWDED_SECONDS + COMPLAIN_SECONDS + 10)
    assert len(caplog.messages) == 2
    assert all("12 databases have been busy at once" in line for line in caplog.messages)
    assert all("connections=8" in line for line in caplog.messages)


def test_what_the_watcher_keeps_for_itself_is_not_there_for_databases(make: Any) -> None:
    world = make(8, 8)
    assert world.server.take_extra()
    world.serve(CROWDED_SECONDS + 2, at_once=1)
    assert world.server.crowded_seconds >= CROWDED_SECONDS
    world.server.drop_extra()
    world.now += BUSY_SECONDS + 1
    world.serve(CROWDED_SECONDS + 2, at_once=1)
    assert world.server.crowded_seconds == 0
