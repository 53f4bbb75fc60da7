"""A streaming standby, made by a base backup under load, is promoted when the primary is killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.faults.account import Account
from tests.faults.figures import Figures
from tests.faults.load import Load
from tests.faults.servers import SECONDS, Server, server, wait_until
from tests.faults.verdict import conclude
from tests.support import local_postgres

PHASE = SECONDS / 3
"""Seconds of load before the backup, between it and the failover, and after that."""


@contextlib.contextmanager
def backup(primary: Server, *options: str) -> Iterator[Server]:
    """A server whose files are a base backup of a running one, taken now and verified."""
    with server(primary.known) as made:
        made.run(
            "pg_basebackup",
            *("-d", primary.connection(), "-D", made.data),
            *("-X", "stream", "-c", "fast", "--no-sync", *options),
        )
        if primary.known.folder.is_relative_to(local_postgres.SYSTEM_ROOT):
            made.run("pg_verifybackup", "--quiet", made.data)  # the embedded server's one crashes
        yield made


def follow(standby: Server, primary: Server) -> None:
    """Starts a backup as the primary's standby."""
    standby.settings["primary_conninfo"] = f"{primary.connection()} application_name=standby"
    standby.start()
    query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
    wait_until(lambda: primary.value(query) == 1, "the standby does not follow")


def promote(standby: Server) -> None:
    """Makes the standby a primary."""
    assert standby.value("SELECT pg_promote(wait => true)") is True


def test_base_backup(running: Server, record: Callable[[Figures], None]) -> None:
    """A base backup taken under load has all that was committed when it began, and all of it comes out."""
    with Load(running.url) as load:
        load.hold(150, PHASE)
        before = frozenset(load.account.confirmed)
        with backup(running) as copy:
            load.hold(50, PHASE)
            copy.start()
            restored = Account(confirmed=set(before))
            figures = Figures("base backup restored", running.known.id, faults=1)
            with Load(copy.url, restored, seed=2) as second:
                second.hold(150, PHASE)
            record(conclude(copy, second, figures))


@pytest.mark.every_version
def test_synchronous_standby_promoted(running: Server, record: Callable[[Figures], None]) -> None:
    """Whatever was confirmed is on a synchronous standby: nothing is lost."""
    with Load(running.url) as load:
        load.hold(100, PHASE)
        with backup(running, "-R") as standby:
            follow(standby, running)
            running.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            running.sql("SELECT pg_reload_conf()")
            query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            wait_until(lambda: running.value(query) == 1, "the standby does not become synchronous")
            load.hold(200, PHASE)
            running.kill()
            load.stop()
            promote(standby)
            account = load.account
            account.forget_holders()
            with Load(standby.url, account, seed=2) as second:
                second.hold(200, PHASE)
            second.seconds += load.seconds
            figures = Figures("synchronous standby promoted", running.known.id, faults=1)
            record(conclude(standby, second, figures))


def test_asynchronous_standby_promoted(running: Server, record: Callable[[Figures], None]) -> None:
    """An asynchronous standby lacks the last commits: those are counted, and nothing else is wrong."""
    with Load(running.url) as load:
        load.hold(100, PHASE)
        with backup(running, "-R") as standby:
            follow(standby, running)
            load.hold(150, PHASE)
            # The standby is away for a moment, and in that moment the primary dies.
            standby.stop()
            load.hold(150)
            running.kill()
            load.stop()
            standby.start()
            promote(standby)
            account = load.account
            had = {str(row["key"]) for row in standby.sql("SELECT key FROM public.orders")}
            took_effect = {str(row["key"]) for row in standby.sql("SELECT key FROM public.effects")}
            forgotten = account.settled - took_effect
            assert account.confirmed - had, "the standby had everything: this shows nothing"
            assert forgotten, "the standby had every ack: this shows nothing"
            # Only these may come again.
            account.settled &= took_effect
            account.forget_holders()
            with Load(standby.url, account, seed=2) as second:
                second.hold(200, PHASE)
            second.seconds += load.seconds
            figures = Figures("asynchronous standby promoted", running.known.id, faults=1)
            record(conclude(standby, second, figures, standby_had=had))
