"""pg_upgrade from the oldest version here to the newest: what the queue holds, and its marks, go along."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.faults import servers
from tests.faults.figures import Figures
from tests.faults.load import BOXES, Load
from tests.faults.servers import SECONDS, Programs, Server, deploy_books, run, server
from tests.faults.verdict import conclude

_OPTION = b"pg_attver"
"""What servers keep with columns since the releases of November 2026, and older ones refuse to take over."""
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'infra'::regnamespace AND relkind = %s"


@pytest.fixture(scope="module")
def versions() -> tuple[Programs, Programs]:
    """The newest version, with pg_upgrade, and the oldest whose tables it takes."""
    found = list(servers.programs().values())
    if len(found) < 2:
        pytest.skip("two versions of PostgreSQL are needed, and only one or none is here")
    *older, new = found
    if not os.access(new.folder / "pg_upgrade", os.X_OK):
        pytest.skip(f"{new.id} has come without pg_upgrade")
    for old in older:
        if keeps_option(new) or not keeps_option(old):
            return old, new
    pytest.skip(f"{new.id} is an older release than all that could be upgraded to it")


def keeps_option(known: Programs) -> bool:
    """Whether its tables hold what only releases of its time or later take over."""
    return _OPTION in (known.folder / "postgres").read_bytes()


def rows(running: Server) -> dict[str, str]:
    """Every table's rows and every sequence's place."""
    found: dict[str, str] = {}
    for table in running.sql(_TABLES, "r"):
        name = f'infra."{table["relname"]}"'
        found[name] = str(
            running.value(f"SELECT jsonb_agg(to_jsonb(t) ORDER BY to_jsonb(t)::text)::text FROM {name} AS t")
        )
    for sequence in running.sql(_TABLES, "S"):
        name = f'infra."{sequence["relname"]}"'
        found[name] = str(running.sql(f"SELECT last_value, is_called FROM {name}"))
    return found


def test_pg_upgrade(versions: tuple[Programs, Programs], record: Callable[[Figures], None]) -> None:
    """Upgraded after a load and with much waiting: the same rows, the same marks, and the load goes on."""
    with servers.reachable(versions[0]) as old_programs, servers.reachable(versions[1]) as new_programs:
        # Releases from 18 on turn checksums on by themselves, and both servers must agree.
        plain = ("--no-data-checksums",) if new_programs.version >= 18 else ()
        with server(old_programs) as old, server(new_programs) as new:
            old.create()
            old.start()
            deploy_books(old.url)
            with Load(old.url) as load:
                load.hold(300, SECONDS / 2)
                for box in BOXES:
                    old.sql(f"SELECT infra._{box}_tick()")
            before = rows(old)
            old.stop()
            new.create(*plain)
            run(
                *("sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", new.folder),
                new_programs.folder / "pg_upgrade",
                *("-b", old_programs.folder, "-B", new_programs.folder, "-d", old.data, "-D", new.data),
                *("-U", "postgres", "-s", new.folder),
                log=new.log,
            )
            new.start()
            assert rows(new) == before
            load.account.forget_holders()
            with Load(new.url, load.account, seed=2) as second:
                second.hold(200, SECONDS / 2)
            second.seconds += load.seconds
            engines = f"{old_programs.id} → {new_programs.id}"
            record(conclude(new, second, Figures("pg_upgrade", engines, faults=1)))
