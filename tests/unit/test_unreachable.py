"""A database that cannot be reached is told of once, then seldom, and when it is back."""

from __future__ import annotations

import logging

import pytest

import pysqlbox
from pysqlbox import DatabaseUnavailable, Retries, unreachable
from pysqlbox.unreachable import Unreachable
from tests.unit.standins import Clock

AWAY = DatabaseUnavailable("db.example: refused")
LOG = logging.getLogger("pysqlbox.test_unreachable")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that goes by."""
    found = Clock()
    monkeypatch.setattr(unreachable, "time", found)
    return found


def test_it_is_told_once_then_every_minute_and_at_the_end(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG.name)
    told = Unreachable(LOG)
    told.end("shop")
    for _ in range(1300):  # a try every tenth of a second
        told.note(AWAY, "shop")
        clock.now += 0.1
    told.end("shop")
    told.end("shop")
    told.note(AWAY, "shop")
    assert caplog.messages == [
        "no connection, trying again: db.example: refused [shop]",
        "no connection for 60 s, trying on: db.example: refused [shop]",
        "no connection for 120 s, trying on: db.example: refused [shop]",
        "connected after 130.0 s [shop]",
        "no connection, trying again: db.example: refused [shop]",
    ]


def test_all_tries_of_all_calls_are_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    """Of a deployment whose server is not there."""
    retries = Retries(attempts=4, base_seconds=0.0, cap_seconds=0.0)
    db = pysqlbox.connect("postgresql://nobody@127.0.0.1:1/nowhere", retries=retries, store="shop")
    caplog.set_level(logging.INFO, "pysqlbox")
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable, match="refused; check that the server runs"):
            db.outbox.stats()
    db.close()
    (line,) = caplog.messages
    assert line == (
        "no connection, trying again: postgresql://127.0.0.1:1/nowhere: connection to server at"
        ' "127.0.0.1", port 1 failed: Connection refused; check that the server runs there and takes'
        " connections [shop]"
    )
