"""A deployment's place: given once, in every id and drawn message_id, and never run over."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import pysqlbox
from pysqlbox.deploy.migrate import migrate, status
from pysqlbox.deploy.script import render_script
from pysqlbox.drivers import parse_url
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, InvalidState, PysqlboxError
from pysqlbox.names import NamedBox
from pysqlbox.places import first_id, last_id, place_of
from tests.deploy.test_migrate import ORDERS, in_schema
from tests.deploy.test_script import run
from tests.support.database import execute_once

MAIL = NamedBox("mail", "outbox")


def spend(url: str, box: str, place: int, left: int) -> None:
    """Leaves a box so many ids of its place."""
    last = last_id(place) - left
    in_schema(
        url,
        f"SELECT setval('{{s}}._{box}_ids', {last})",
        f"ALTER SEQUENCE {{s}}._{box}_ids RESTART WITH {last};"
        f" DECLARE @drawn bigint = NEXT VALUE FOR {{s}}._{box}_ids;",
    )


def enqueue_everywhere(db: pysqlbox.Deployment) -> dict[str, int]:
    """An id from each way in, none of which has gone elsewhere; the message_ids go along."""
    found: dict[str, int] = {}
    for name in ("outbox", "mail"):
        outbox = db.box(name)
        assert isinstance(outbox, pysqlbox.Outbox)
        with db.transaction() as connection:
            drawn = [
                outbox.enqueue("t", "p"),
                outbox.enqueue("t", "p", connection=connection),
                outbox.enqueue("t", "p", group_id="g", connection=connection),
                *outbox.enqueue_many([{"topic": "t", "payload": "p"}], connection=connection),
                *outbox.enqueue_many(
                    [{"topic": "t", "payload": "p", "dedup_key": uuid4().hex}], connection=connection
                ),
                *outbox.enqueue_payloads("t", ["p"], connection=connection),
            ]
        for number, each in enumerate(drawn):
            assert place_of(each.message_id) == place_of(each.id), (name, number)
            stored = outbox.find(each.message_id)
            assert stored is not None
            assert stored.id == each.id
            found[f"{name} {number}"] = each.id
    for name in ("inbox", "orders"):
        inbox = db.box(name)
        assert isinstance(inbox, pysqlbox.Inbox)
        key = uuid4().hex
        found[f"{name} enqueue"] = inbox.enqueue("t", "s", key, "p").id
        record = {"topic": "t", "source": "s", "message_id": key + "1", "payload": "p"}
        found[f"{name} many"] = inbox.enqueue_many([record])[0].id
        inbox.already_processed(key + "2", "s")
        seen = inbox.find(key + "2", "s")
        assert seen is not None
        found[f"{name} seen"] = seen.id
    join = db.joins.start("tenant", 1)
    step = db.outbox.enqueue("t", "step")
    db.joins.attach(join, step.message_id)
    waits = db.joins.wait(join, on_complete_topic="next")
    assert place_of(waits.message_id) == place_of(waits.id)
    found["wait"] = waits.id
    db.joins.report_completed(join, step.message_id)
    follows = db.joins.resolve(join).enqueued_message_id
    assert follows is not None
    next_message = db.outbox.find(follows)
    assert next_message is not None
    assert place_of(follows) == place_of(next_message.id)
    found["follows"] = next_message.id
    return found


@pytest.mark.parametrize("place", [0, 5, 127])
def test_every_id_and_drawn_message_id_carries_it(empty_url: str, place: int) -> None:
    """Default and named boxes, one message and many, given and drawn ids; and all of them are worked."""
    plan = migrate(empty_url, boxes=[ORDERS, MAIL], place=place)
    assert (plan.place, plan.numbered) == (place, True)
    with pysqlbox.connect(empty_url) as db:
        assert db.schema_place() == place
        ids = enqueue_everywhere(db)
        assert {name: place_of(found) for name, found in ids.items()} == dict.fromkeys(ids, place)
        for name in ("outbox", "mail", "inbox", "orders"):
            box, owner = db.box(name), uuid4()
            expected = {
                found for way, found in ids.items() if way.startswith(f"{name} ") and "seen" not in way
            }
            claimed = {each.id for each in box.claim(owner)}
            assert claimed >= expected
            assert box.ack(owner, list(claimed)) == len(claimed)


def test_a_deployment_without_one_draws_as_place_0(empty_url: str) -> None:
    """What Python, a single enqueue and a batch draw can be told by their place, number or not."""
    migrate(empty_url)
    with pysqlbox.connect(empty_url) as db:
        assert db.schema_place() is None
        drawn = [db.outbox.enqueue("t", "p"), *db.outbox.enqueue_payloads("t", ["p"] * 3)]
        with db.transaction() as connection:
            drawn.append(db.outbox.enqueue("t", "p", connection=connection))
        assert {place_of(each.message_id) for each in drawn} == {0}
        assert {(each.message_id.int >> 40) & 0xFF for each in drawn} == {0x80}
    found = status(empty_url)
    assert (found.place, found.changes) == (None, False)


def test_it_is_given_once(empty_url: str) -> None:
    """The same number again is nothing to do, and none keeps it; another one is refused, by SQL too."""
    migrate(empty_url, place=7)
    for place in (7, None):
        again = migrate(empty_url, place=place)
        assert (again.changes, again.place, again.numbered) == (False, 7, False)
    for other in (0, 8):
        with pytest.raises(InvalidState, match=rf"has place 7, for good; it cannot become place {other}"):
            migrate(empty_url, place=other)
    assert status(empty_url).place == 7
    with pysqlbox.connect(empty_url) as db:
        with pytest.raises(InvalidState, match="has place 7, for good"):
            db.call("_set_place", {"place": 8})
        for wrong in (-1, 128):
            with pytest.raises(InvalidArgument, match="place: must be from 0 to 127"):
                db.call("_set_place", {"place": wrong})
        assert place_of(db.outbox.enqueue("t", "p").id) == 7


@pytest.mark.parametrize("place", [-1, 128, True, "3", 1.0])
def test_no_place(place: Any) -> None:
    """Refused before anything is asked of a database."""
    with pytest.raises(InvalidArgument, match="place: must be a whole number from 0 to 127"):
        migrate("postgresql://nowhere.invalid/d", place=place)
    with pytest.raises(InvalidArgument, match="place: must be a whole number from 0 to 127"):
        render_script("postgres", place=place)


def test_a_dry_run_gives_none(empty_url: str) -> None:
    """It only says so."""
    migrate(empty_url)
    plan = migrate(empty_url, place=3, dry_run=True)
    assert (plan.place, plan.numbered, plan.changes) == (3, True, True)
    assert status(empty_url).place is None


def test_a_box_added_later_gets_it(empty_url: str) -> None:
    """Without the number having to be said again."""
    migrate(empty_url, place=9)
    migrate(empty_url, boxes=[ORDERS, MAIL])
    with pysqlbox.connect(empty_url) as db:
        ids = enqueue_everywhere(db)
        assert {place_of(found) for found in ids.values()} == {9}


def test_its_last_id_is_the_end(empty_url: str) -> None:
    """Every way in draws the last one and then fails, and nothing of what failed is there."""
    migrate(empty_url, boxes=[ORDERS, MAIL], place=2)
    record = {"topic": "t", "payload": "p"}
    with pysqlbox.connect(empty_url) as db:
        outbox, inbox = db.outbox, db.inbox
        join = db.joins.start("tenant", 1)
        received = iter(range(100))

        def one(_: Any = None) -> int:
            return inbox.enqueue("t", "s", f"m{next(received)}", "p").id

        def many(_: Any = None) -> int:
            return inbox.enqueue_many([record | {"source": "s", "message_id": f"m{next(received)}"}])[0].id

        ways: dict[str, tuple[str, Any]] = {
            "enqueue": ("outbox", lambda: outbox.enqueue("t", "p").id),
            "grouped": ("outbox", lambda: outbox.enqueue("t", "p", group_id="g").id),
            "many": ("outbox", lambda: outbox.enqueue_many([record])[0].id),
            "keyed": ("outbox", lambda: outbox.enqueue_many([record | {"dedup_key": uuid4().hex}])[0].id),
            "payloads": ("outbox", lambda: outbox.enqueue_payloads("t", ["p"])[0].id),
            "inbox": ("inbox", one),
            "inbox many": ("inbox", many),
        }
        last = last_id(2)
        expected: dict[str, list[int]] = {"outbox": [], "inbox": []}
        for box, way in ways.values():
            spend(empty_url, box, 2, 1 + len(expected[box]))
            expected[box].append(way())
            spend(empty_url, box, 2, 0)
            with pytest.raises(InvalidState, match="the ids of this deployment's place are used up"):
                way()
        assert expected["outbox"] == [last - number for number in range(5)]
        assert expected["inbox"] == [last, last - 1]
        with pytest.raises(InvalidState, match="used up"):
            db.joins.wait(join)
        with pytest.raises(InvalidState, match="used up"):
            inbox.already_processed("new", "s")
        spend(empty_url, "outbox", 2, 2)
        with pytest.raises(InvalidState, match="used up"):
            outbox.enqueue_payloads("t", ["p"] * 3)
        for name in ("outbox", "inbox"):
            assert {
                row["id"] for row in execute_once(empty_url, f"SELECT id FROM infra.{name}_messages")
            } == set(expected[name])


def test_what_was_enqueued_before_stays_what_it_was(empty_url: str) -> None:
    """A number may come late: older messages keep their ids and message_ids, are found, and come first."""
    migrate(empty_url)
    with pysqlbox.connect(empty_url) as db:
        with db.transaction() as connection:
            older = [
                db.outbox.enqueue("t", "older", connection=connection),
                db.outbox.enqueue("t", "older", group_id="g", connection=connection),
                *db.outbox.enqueue_payloads("t", ["older"] * 3, connection=connection),
            ]
        delayed = db.outbox.enqueue("t", "later", delay=1000)
        db.inbox.enqueue("t", "s", "m", "older")
        plan = db.migrate(place=100)
        assert (plan.place, plan.numbered, plan.tables, plan.routines) == (100, True, [], [])
        newer = [db.outbox.enqueue("t", "newer"), db.outbox.enqueue("t", "newer", group_id="g")]
        assert [place_of(each.id) for each in newer] == [100, 100]
        assert [place_of(each.message_id) for each in newer] == [100, 100]
        for each in [*older, delayed, *newer]:
            stored = db.outbox.find(each.message_id)
            assert stored is not None
            assert stored.id == each.id
        assert db.outbox.enqueue("t", "again", message_id=older[0].message_id).outcome == "duplicate"
        assert db.inbox.enqueue("t", "s", "m", "again").outcome == "updated"
        owner = uuid4()
        claimed = [each.id for each in db.outbox.claim(owner)]
        assert sorted(claimed) == sorted(each.id for each in [*older, *newer])
        assert claimed.index(older[1].id) < claimed.index(newer[1].id)
        assert db.outbox.ack(owner, claimed) == len(claimed)
        assert db.outbox.reschedule([delayed.id], None) == 1
        assert [each.id for each in db.outbox.claim(owner)] == [delayed.id]


def test_ids_go_on_within_their_place_and_never_back(empty_url: str) -> None:
    """What is within a place goes on there; what is beyond one cannot get it any more."""
    migrate(empty_url)
    in_schema(
        empty_url,
        f"SELECT setval('{{s}}._outbox_ids', {first_id(3) + 10})",
        f"ALTER SEQUENCE {{s}}._outbox_ids RESTART WITH {first_id(3) + 10}",
    )
    for lower in (0, 2):
        with pytest.raises(InvalidState, match=f"box outbox has ids above those of place {lower}"):
            migrate(empty_url, place=lower)
        assert status(empty_url).place is None
    migrate(empty_url, place=3)
    with pysqlbox.connect(empty_url) as db:
        assert first_id(3) + 10 < db.outbox.enqueue("t", "p").id < first_id(3) + 20
        assert place_of(db.inbox.enqueue("t", "s", "m", "p").id) == 3


@pytest.mark.dialect("postgres")
def test_it_waits_for_who_has_drawn(empty_url: str) -> None:
    """An open producer is in the way, and is named; afterwards nothing has been changed."""
    migrate(empty_url)
    with psycopg.connect(empty_url) as producer:
        producer.execute("SELECT infra.outbox_enqueue('t', 'p')")
        with pytest.raises(DatabaseUnavailable, match=r"is in use by session .*nothing was changed"):
            migrate(empty_url, place=4, wait_seconds=0)
        assert status(empty_url).place is None
        assert producer.execute("SELECT id FROM infra.outbox_enqueue('t', 'p')").fetchone() == (2,)
    migrate(empty_url, place=4, wait_seconds=0)
    with pysqlbox.connect(empty_url) as db:
        assert db.outbox.enqueue("t", "p").id == first_id(4)
        assert len(db.outbox.claim(uuid4())) == 3


@pytest.mark.dialect("postgres")
def test_a_restored_dump_keeps_it(empty_url: str, tmp_path: Path) -> None:
    """Wherever it is restored, and ids go on behind those it had."""
    programs = Path("/usr/lib/postgresql")
    dump = shutil.which("pg_dump") or max(map(str, programs.glob("*/bin/pg_dump")), default=None)
    psql = shutil.which("psql") or max(map(str, programs.glob("*/bin/psql")), default=None)
    if dump is None or psql is None:
        pytest.skip("pg_dump and psql are not installed")
    migrate(empty_url, place=6)
    with pysqlbox.connect(empty_url) as db:
        before = db.outbox.enqueue("t", "p")
    file = tmp_path / "dump.sql"
    made = subprocess.run(
        [dump, f"--file={file}", f"--dbname={empty_url}"], capture_output=True, text=True, check=False
    )
    if "server version mismatch" in made.stderr:
        pytest.skip("pg_dump is older than this server")
    assert made.returncode == 0, made.stderr
    execute_once(empty_url, "DROP SCHEMA infra CASCADE")
    subprocess.run(
        [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", f"--file={file}", f"--dbname={empty_url}"],
        capture_output=True,
        check=True,
    )
    assert not status(empty_url).changes
    assert migrate(empty_url, boxes=[ORDERS]).place == 6
    with pytest.raises(InvalidState, match="has place 6"):
        migrate(empty_url, place=1)
    with pysqlbox.connect(empty_url) as db:
        assert db.outbox.find(before.message_id) is not None
        assert before.id < db.outbox.enqueue("t", "p").id <= before.id + 33
        spend(empty_url, "outbox", 6, 0)
        with pytest.raises(InvalidState, match="used up"):
            db.outbox.enqueue("t", "p")


def test_the_script_gives_it_too(empty_url: str) -> None:
    """Once; a later one without it keeps it and numbers what was added; another number undoes all."""
    dialect = parse_url(empty_url).dialect
    run(empty_url, render_script(dialect, place=11))
    assert (status(empty_url).place, status(empty_url).changes) == (11, False)
    run(empty_url, render_script(dialect, boxes=[ORDERS, MAIL]))
    with pytest.raises(PysqlboxError, match="has place 11, for good"):
        run(empty_url, render_script(dialect, boxes=[ORDERS, MAIL, NamedBox("late", "inbox")], place=12))
    assert status(empty_url).boxes == []
    with pysqlbox.connect(empty_url) as db:
        with pytest.raises(pysqlbox.NotFound):
            db.box("late")
        assert {place_of(found) for found in enqueue_everywhere(db).values()} == {11}
    assert not migrate(empty_url, place=11).changes


def test_places_of_ids() -> None:
    """The first and the last of a place are its own; in a uuid it is the eleventh byte, less a bit."""
    for place in (0, 1, 127):
        assert place_of(first_id(place)) == place_of(last_id(place)) == place
        assert last_id(place) + 2 == (first_id(place + 1) if place < 127 else (1 << 47) + 1)
        assert place_of(UUID(f"00000000-0000-7000-8000-{0x80 | place:02x}ffffffffff")) == place
    for wrong in (-1, 1 << 47):
        with pytest.raises(InvalidArgument, match="no place has this"):
            place_of(wrong)
