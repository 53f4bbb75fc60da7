"""Logical replication of the schema, and a switch-over as docs/reliability.md tells it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.faults.figures import Figures
from tests.faults.load import Load, move_marks
from tests.faults.servers import SECONDS, Programs, Server, server, wait_until
from tests.faults.verdict import conclude

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
_BOOKS = """
ALTER PUBLICATION pysqlbox ADD TABLE public.orders, public.effects;
"""
_BOOKS_SEQUENCE = "SELECT setval('public.effects_no_seq', coalesce(max(no), 0) + 1) FROM public.effects"


def routine(name: str) -> str:
    """A block of SQL of the document, by the comment that it begins with."""
    text = DOCUMENT.read_text()
    blocks = re.findall(r"^ *```sql\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if block.lstrip().startswith(f"-- {name}\n")]
    return str(found)


def test_switch_over(known: Programs, template: Path, record: Callable[[Figures], None]) -> None:
    """Published and subscribed to under load; then the subscriber takes over, and what waits comes once."""
    with server(known, template, wal_level="logical") as old, server(known, template) as new:
        old.start()
        new.start()
        with Load(old.url) as load:
            load.hold(150, SECONDS / 3)
            old.sql(routine("publisher"))
            old.sql(_BOOKS)
            new.sql(routine("subscriber: make room"))
            new.sql(f"CREATE SUBSCRIPTION pysqlbox CONNECTION '{old.connection()}' PUBLICATION pysqlbox")
            load.hold(200, SECONDS / 3)
            not_ready = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
            wait_until(lambda: new.value(not_ready) == 0, "the tables are not copied")
            load.hold(100)
            move_marks(old, load)
        end = old.value("SELECT pg_current_wal_lsn()")
        slot = "FROM pg_replication_slots WHERE slot_name = 'pysqlbox'"
        caught_up = f"SELECT confirmed_flush_lsn >= %s::pg_lsn {slot}"
        wait_until(lambda: old.value(caught_up, str(end)), "the subscriber does not catch up")
        new.sql("DROP SUBSCRIPTION pysqlbox")
        old.stop()
        new.sql(routine("subscriber: take over"))
        new.sql(_BOOKS_SEQUENCE)
        load.account.forget_holders()
        with Load(new.url, load.account, seed=2) as second:
            second.hold(200, SECONDS / 3)
        second.seconds += load.seconds
        figures = Figures("switch-over to a logical subscriber", known.id, faults=1)
        record(conclude(new, second, figures))


def test_every_table_can_be_published(running: Server) -> None:
    """Each has the primary key by which a subscriber finds what changes, and none is left out."""
    running.sql(routine("publisher"))
    without = running.sql(
        "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'infra'::regnamespace AND c.relkind = 'r'"
        " AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)"
        " AND c.relname NOT LIKE '\\_%'"
    )
    # What is only ever inserted into needs none.
    assert {str(row["relname"]).rpartition("_")[2] for row in without} <= {"lane"}
    published = {str(row["tablename"]) for row in running.sql("SELECT tablename FROM pg_publication_tables")}
    tables = {
        str(row["relname"])
        for row in running.sql(
            "SELECT relname FROM pg_class WHERE relnamespace = 'infra'::regnamespace AND relkind = 'r'"
        )
    }
    assert published == {name for name in tables if not name.startswith("_")}
