"""pg_dump under load, restored into a new database: what its snapshot had must come out, and once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.concurrency.invariants import FAR, check
from tests.faults.account import Account
from tests.faults.busy import claims_until
from tests.faults.figures import Figures
from tests.faults.load import BOXES, Load, move_marks
from tests.faults.servers import SECONDS, Server
from tests.faults.verdict import conclude, database
from tests.support.database import Database

_WAITING = """
SELECT o.key FROM public.orders AS o
WHERE o.box = %s AND NOT EXISTS (SELECT FROM public.effects AS e WHERE e.key = o.key)
"""


@contextlib.contextmanager
def restored_under_load(running: Server) -> Iterator[tuple[Load, Database]]:
    """A database that was dumped while the load went on, after its snapshot too, and restored.

    A dump's tables are those of its snapshot, its sequences those of the moment in which they are read; here
    every mark has had time to move on between the two.
    """
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(Load(running.url))
        load.hold(300, SECONDS / 3)
        dumped = running.folder / "dump"
        with psycopg.connect(running.url) as holder:
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = holder.execute("SELECT pg_export_snapshot()").fetchone()
            assert row is not None
            load.hold(1500, SECONDS / 3)
            move_marks(running, load)
            running.run(
                *("pg_dump", "--format=custom", f"--snapshot={row[0]}", f"--file={dumped}"),
                f"--dbname={running.connection()}",
            )
        load.stop()
        running.sql("CREATE DATABASE restored")
        running.run("pg_restore", "--exit-on-error", f"--dbname={running.database_url('restored')}", dumped)
        yield load, stack.enter_context(database(running, "restored"))


def test_stats_count_everything_right_after_a_restore(running: Server) -> None:
    """A figure does not read through a mark."""
    with restored_under_load(running) as (_, db):
        for box in BOXES:
            total = db.call(f"{box}_stats")[-1]
            assert total["topic"] is None
            waiting = sum(int(str(total[name])) for name in ("ready", "scheduled", "in_flight"))
            assert waiting == len(db.sql(_WAITING, box)), f"{box}: {total}"


@pytest.mark.parametrize("box", BOXES)
def test_a_busy_box_hands_out_all_of_a_restored_dump(running: Server, box: str) -> None:
    """No claim finds nothing and nobody reaps: still whatever the dump had comes out, and once."""
    with restored_under_load(running) as (_, db):
        waiting = {str(row["key"]) for row in db.sql(_WAITING, box)}
        assert waiting
        db.advance(FAR)  # the leases of the load's workers are over
        missing, claims, came = claims_until(db, box, waiting)
        assert not missing, f"{len(missing)} of {len(waiting)} did not come in {claims} busy claims"
        assert len(came) == len(set(came)), "handed out twice"
        check(db, box)


@pytest.mark.every_version
def test_the_load_goes_on_in_a_restored_database(running: Server, record: Callable[[Figures], None]) -> None:
    """Producers and workers move over to the restored database: nothing that it had is lost or doubled."""
    with restored_under_load(running) as (_, db):
        had = {str(row["key"]) for row in db.sql("SELECT key FROM public.orders")}
        with Load(db.url, Account(confirmed=had), seed=2) as load:
            load.hold(200, SECONDS / 3)
        record(conclude(running, load, Figures("dump restored", running.known.id, faults=1), name="restored"))
