"""Keys of the ledger, a page at a time."""

from __future__ import annotations

import pytest

from tests.contract.support import DISTINCT, HOSTILE, TOO_LONG, Row, by_position, columns, refuses
from tests.support.database import Database, Session

COLUMNS = ["key", "status", "attempts", "first_seen_at", "last_seen_at", "lease_until", "handler"]


def listed(db: Database, **filters: object) -> list[Row]:
    """The rows of a list."""
    rows = db.call("ledger_list", **filters)
    assert all(list(row) == COLUMNS for row in rows)
    return rows


def keys(db: Database, **filters: object) -> list[str]:
    """The keys of a list, in its order."""
    return [str(row["key"]) for row in listed(db, **filters)]


def begin(db: Database, *names: str, **more: object) -> list[Row]:
    """Acquires keys."""
    return [db.one("ledger_try_begin", key=name, **more) for name in names]


@pytest.fixture
def filled(db: Database) -> Database:
    """Keys in each status."""
    begin(db, "a:1", "a:2", "b:1", lease_seconds=60, handler="h")
    (held,) = begin(db, "a:3")
    db.call("ledger_release", key="a:3", lease_id=held["lease_id"])
    db.call("ledger_mark_processed", key="b:2")
    return db


def test_contract_the_ledger_lists_its_keys_with_what_is_known_of_them(filled: Database) -> None:
    rows = listed(filled)
    assert [(row["key"], row["status"]) for row in rows] == [
        ("a:1", "Acquired"),
        ("a:2", "Acquired"),
        ("a:3", "Unknown"),
        ("b:1", "Acquired"),
        ("b:2", "Processed"),
    ]
    for row in rows:
        known = filled.one("ledger_get", key=row["key"])
        assert {name: row[name] for name in COLUMNS[1:]} == known


def test_contract_the_ledger_lists_by_prefix_and_by_status(filled: Database) -> None:
    assert keys(filled, prefix="a:") == ["a:1", "a:2", "a:3"]
    assert keys(filled, prefix="a:1") == ["a:1"]
    assert keys(filled, prefix="a:1x") == []
    assert keys(filled, prefix="") == keys(filled)
    assert keys(filled, status="Acquired") == ["a:1", "a:2", "b:1"]
    assert keys(filled, prefix="b", status="Processed") == ["b:2"]
    assert keys(filled, status="Unknown") == ["a:3"]


def test_contract_the_ledger_lists_a_page_at_a_time(filled: Database) -> None:
    assert keys(filled, limit=2) == ["a:1", "a:2"]
    assert keys(filled, limit=2, after="a:2") == ["a:3", "b:1"]
    assert keys(filled, limit=2, after="b:1") == ["b:2"]
    assert keys(filled, after="b:2") == []
    assert keys(filled, after="a:2x", prefix="a") == ["a:3"], "it need not exist"
    assert keys(filled, after="a:1", status="Acquired", limit=1) == ["a:2"]


def test_contract_pages_of_hostile_keys_show_each_once(db: Database) -> None:
    names = [*HOSTILE, *DISTINCT, "a", "a!", "a.", "a.b", "a b", "ab", "%", "_", "[a]", "!", "!!", "x" * 512]
    begin(db, *names)
    found: list[str] = []
    while page := keys(db, limit=3, **({"after": found[-1]} if found else {})):
        found += page
    assert len(found) == len(names)
    assert set(found) == set(names)
    for name in names:
        beginning = name[:3]
        expected = {each for each in names if each.startswith(beginning)}
        assert set(keys(db, prefix=beginning)) == expected, beginning
    assert keys(db, prefix=TOO_LONG[0] * 3) == []
    assert keys(db, prefix="x" * 513) == []
    assert keys(db, after="x" * 600, prefix="x") == []


def test_contract_ledger_list_refuses_bad_arguments(db: Database) -> None:
    for status in ("", "acquired", "Acquired ", "Busy"):
        with refuses("status"):
            listed(db, status=status)
    for limit in (0, -1, 10_001, None):
        with refuses("limit"):
            listed(db, limit=limit)


def test_contract_ledger_list_has_its_shape(filled: Database) -> None:
    assert columns(filled, "ledger_list", "nobody", "Unknown", 5, "x") == COLUMNS
    assert [row["key"] for row in by_position(filled, "ledger_list", "a", "Acquired", 1, "a:1")] == ["a:2"]


@pytest.mark.dialect("postgres")
def test_contract_a_page_of_a_prefix_costs_what_it_shows(db: Database) -> None:
    """Neither the keys before the prefix nor those behind it are read."""
    db.sql(
        "INSERT INTO {schema}.ledger (key, state, attempts, first_seen_at, last_seen_at, processed_at)"
        " SELECT 'k' || n, 'Processed', 0, now(), now(), now() FROM generate_series(100000, 129999) AS n"
    )
    db.sql("ANALYZE {schema}.ledger")
    with db.session() as session:
        session.sql("SET LOCAL enable_seqscan = off")
        (before,) = _blocks(session)
        assert len(session.call("ledger_list", prefix="k1150", limit=200)) == 100
        assert session.call("ledger_list", prefix="k1150", after="k115099", limit=200) == []
        (after,) = _blocks(session)
    assert after - before < 200


def _blocks(session: Session) -> list[int]:
    """How many pages of the ledger and its indexes this session has asked for."""
    query = (
        "SELECT pg_stat_get_xact_blocks_fetched('{schema}.ledger'::regclass) + coalesce(sum("
        "pg_stat_get_xact_blocks_fetched(i.indexrelid)), 0) AS blocks FROM pg_index AS i"
        " WHERE i.indrelid = '{schema}.ledger'::regclass"
    )
    rows = session.sql(query)
    return [int(str(rows[0]["blocks"]))]
