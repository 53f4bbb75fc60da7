"""The watcher of many stores' worker: what it leaves behind."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pysqlbox.stores.servers import Kept, ServedDatabase, Server
from pysqlbox.stores.watcher import Watcher


class _Stopped:
    stopping = True


def test_a_watcher_that_has_ended_leaves_nothing_open() -> None:
    watcher = Watcher(list, cast(Any, _Stopped()), watches=False)
    watcher.run()
    watcher.ring()  # nobody hears it any more, and it does no harm
    assert (watcher._bell.fileno(), watcher._string.fileno()) == (-1, -1)


def test_a_watcher_outlives_what_it_did_not_expect(caplog: pytest.LogCaptureFixture) -> None:
    class Scheduler:
        rounds = 0

        @property
        def stopping(self) -> bool:
            return self.rounds == 3

        def pause(self, _seconds: float) -> bool:
            return False

    scheduler = Scheduler()

    def servers() -> list[Server]:
        scheduler.rounds += 1
        raise AttributeError("of somebody else's")

    with caplog.at_level(logging.ERROR, "pysqlbox.worker"):
        Watcher(servers, cast(Any, scheduler), watches=False).run()
    assert len(caplog.records) == 3


def _kept(name: str, server: Server, *, worked: float | None = None, used: float, ear: bool = False) -> Kept:
    database: Any = server.databases.get(name)
    if database is None:
        db: Any = SimpleNamespace(
            target=SimpleNamespace(dsn=name, dialect="postgres"),
            driver=SimpleNamespace(),
            store="s",
            store_key=None,
            schema="infra",
        )
        database = server.databases[name] = ServedDatabase(server, db)
    if worked is not None:
        database.worked_at = time.monotonic() - worked
    kept = Kept(database)
    kept.worker, kept.used_at = cast(Any, SimpleNamespace(close=lambda: None)), used
    if ear:
        kept.ear, database.ear = SimpleNamespace(closed=False), kept
    server._free.append(kept)
    server._open += 1
    return kept


def test_the_connections_that_messages_come_by_make_way_last() -> None:
    server = Server("s", 4)
    busy = _kept("busy", server, worked=1, used=1, ear=True)
    second = _kept("busy", server, used=9)
    quiet = _kept("quiet", server, used=5, ear=True)
    fresh = _kept("fresh", server, worked=0.5, used=2)
    going = []
    for _ in range(4):
        found = server._least_worth()
        server._free.remove(found)
        going.append((found, server._serves_busy(found)))
    assert going == [(quiet, False), (second, False), (busy, True), (fresh, True)]


def test_who_stops_listening_meanwhile_is_passed_over() -> None:
    """A connection that has made way, or whose place another one has taken, between two looks at it."""
    server = Server("s", 4)
    kept = _kept("a", server, used=1, ear=True)
    pairs = server.ears()
    assert [each for each, _ in pairs] == [kept]
    kept.ear = None
    assert pairs[0][1] is not None
    assert server.ears() == []
    assert server.hear(kept) == ([], True)
