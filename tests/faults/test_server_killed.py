"""The server, or a part of it, is killed under load, again and again, and goes on from what is on disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.faults.figures import Figures
from tests.faults.load import Load
from tests.faults.servers import SECONDS, Server, wait_until
from tests.faults.verdict import conclude

KILLS = max(3, int(SECONDS / 5))
_CLIENTS = "application_name = 'pysqlbox' AND pid <> pg_backend_pid()"


@pytest.mark.every_version
def test_all_processes_killed_at_once(running: Server, record: Callable[[Figures], None]) -> None:
    """SIGKILL for the postmaster and each of its children, three times or every five seconds."""
    with Load(running.url) as load:
        for _ in range(KILLS):
            load.hold(150, SECONDS / KILLS)
            running.kill()
            running.start()
        load.hold(150)
    figures = Figures("server killed -9", running.known.id, faults=KILLS)
    record(conclude(running, load, figures))


def test_one_backend_killed(running: Server, record: Callable[[Figures], None]) -> None:
    """SIGKILL for one busy backend: the server throws everybody out, recovers and goes on by itself."""
    with Load(running.url) as load:
        for _ in range(KILLS):
            load.hold(150, SECONDS / KILLS)
            victim = running.sql(
                f"SELECT pid FROM pg_stat_activity WHERE {_CLIENTS} ORDER BY xact_start, pid LIMIT 1"
            )
            refusals = load.refusals
            os.kill(int(str(victim[0]["pid"])), signal.SIGKILL)
            wait_until(lambda before=refusals: load.refusals > before, "nobody has noticed")  # type: ignore[misc]
            wait_until(running.answers, "the server does not come back")
        load.hold(150)
    figures = Figures("one backend killed -9", running.known.id, faults=KILLS)
    record(conclude(running, load, figures))


def test_backends_terminated(running: Server, record: Callable[[Figures], None]) -> None:
    """`pg_terminate_backend` for every client, whatever it is doing, as an administrator would."""
    rounds = 3 * KILLS
    ended = 0
    with Load(running.url) as load:
        for _ in range(rounds):
            load.hold(50, SECONDS / rounds)
            ended += len(
                running.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_CLIENTS}")
            )
        load.hold(50)
    assert ended >= rounds
    figures = Figures("backends terminated", running.known.id, faults=ended)
    record(conclude(running, load, figures))
