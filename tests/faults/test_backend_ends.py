"""A backend ends in the middle of a routine, between any two of its statements: all happened, or nothing.

The statements of a routine that write are counted by triggers, and the backend is terminated before and
after each of them in turn. Where a routine can wait for a lock, it is terminated while it does. And the
client's connection is cut before and after each thing it says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pysqlbox.errors import DatabaseUnavailable
from tests.concurrency.invariants import check, drain
from tests.concurrency.sessions import Background
from tests.contract.support import KINDS, OTHER, OWNER, Box, json_text
from tests.faults.servers import SECONDS, wait_until
from tests.support.database import Database, Session
from tests.worker.proxy import proxy

pytestmark = pytest.mark.dialect("postgres")

BOXES = ("outbox", "inbox")
_TRIGGERS = """
CREATE SCHEMA IF NOT EXISTS faults;
CREATE OR REPLACE FUNCTION faults.pass() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    passed integer := coalesce(nullif(current_setting('faults.passed', true), ''), '0')::integer + 1;
BEGIN
    PERFORM set_config('faults.passed', passed::text, false);
    IF passed = coalesce(nullif(current_setting('faults.ends_at', true), ''), '0')::integer THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
        PERFORM pg_sleep(60);
    END IF;
    RETURN NULL;
END;
$$;
DO $$
DECLARE
    named regclass;
BEGIN
    FOR named IN
        SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r'
    LOOP
        EXECUTE format('CREATE TRIGGER passes_before BEFORE INSERT OR UPDATE OR DELETE ON %s'
            ' FOR EACH STATEMENT EXECUTE FUNCTION faults.pass()', named);
        EXECUTE format('CREATE TRIGGER passes_after AFTER INSERT OR UPDATE OR DELETE ON %s'
            ' FOR EACH STATEMENT EXECUTE FUNCTION faults.pass()', named);
    END LOOP;
END;
$$;
"""

Step = Callable[[Session, "Scene"], Any]


class Scene:
    """A box with some of everything, of which one worker holds a part."""

    def __init__(self, db: Database, name: str) -> None:
        self.db = db
        self.box = Box(name, KINDS[name], db, db)
        box = self.box
        self.dead = box.made_dead()
        box.made_done(3)
        held = [box.put() for _ in range(3)] + [
            box.put(group_id="g"),
            box.put(group_id="g"),
            box.put(group_id="h"),
        ]
        if name == "outbox":
            join = db.value("join_start", tenant_id="x", expected_steps=len(held))
            for message in held:
                shown = box.shown(message)
                db.call("join_attach", join_id=join, message_id=shown["message_id"])
            db.call(
                "join_wait",
                join_id=join,
                fail_if_any_step_failed=False,
                on_complete_topic="t",
                on_complete_payload="p",
            )
        assert sorted(box.take(batch=100, lease=60)) == held
        self.held = held
        self.waiting = [box.put(group_id="g"), box.put(priority=3), box.put(), box.put(collapse_key="c")]

    def settle(self, session: Session, claim: int = 10) -> object:
        """Each result once, groups among them, and the next claim."""
        results = ("ack", "abandon", "release", "ack", "ack", "fail")
        outcomes = [
            {"id": message, "result": result, "error": "e"}
            for message, result in zip(self.held, results, strict=True)
        ]
        return self.box.on(session).settle(OWNER, outcomes, claim_batch=claim, lease_seconds=60)

    def contents(self) -> dict[str, str]:
        """Every row of the box's tables and of the joins'."""
        tables = self.db.sql(
            "SELECT c.relname AS name FROM pg_class AS c"
            " WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r'"
            " AND split_part(c.relname, '_', 1) IN (%s, 'join') ORDER BY c.relname",
            self.box.name,
        )
        query = " UNION ALL ".join(
            f"SELECT '{row['name']}' AS name, jsonb_agg(to_jsonb(t) ORDER BY to_jsonb(t)::text)::text AS rows"
            f' FROM {{schema}}."{row["name"]}" AS t'
            for row in tables
        )
        return {str(row["name"]): str(row["rows"]) for row in self.db.sql(query)}


def _enqueue_many(session: Session, scene: Scene) -> object:
    records = [
        scene.box.record(message_id=str(uuid4()), **more)
        for more in ({}, {"group_id": "g"}, {"group_id": "n"}, {"collapse_key": "c"}, {"priority": 2})
    ]
    return session.call(f"{scene.box.name}_enqueue_many", messages=json_text(records))


STEPS: dict[str, Step] = {
    "settle": lambda session, scene: scene.settle(session),
    "ack": lambda session, scene: scene.box.on(session).ack(OWNER, scene.held),
    "abandon": lambda session, scene: scene.box.on(session).abandon(OWNER, scene.held),
    "release": lambda session, scene: scene.box.on(session).release(OWNER, scene.held),
    "fail": lambda session, scene: scene.box.on(session).fail(OWNER, scene.held),
    "claim": lambda session, scene: scene.box.on(session).claim(OTHER),
    "enqueue": lambda session, scene: scene.box.on(session).enqueue(group_id="g", collapse_key="c"),
    "enqueue_many": _enqueue_many,
    "replay": lambda session, scene: scene.box.on(session).call("replay", ids=scene.dead),
    "discard": lambda session, scene: scene.box.on(session).call("discard", ids=scene.dead),
    "cleanup": lambda session, scene: scene.box.on(session).call(
        "cleanup", retention_seconds=0, batch_size=2
    ),
}
"""What is broken off; each writes something in the scene."""


@pytest.fixture
def passing(db: Database) -> Iterator[Database]:
    """The triggers that count statements, for one test; the deployment is used again."""
    db.sql(_TRIGGERS)
    yield db
    db.sql("DROP SCHEMA faults CASCADE")


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("step", [*STEPS, "reap"])
def test_terminated_between_any_two_statements(passing: Database, name: str, step: str) -> None:
    """Before and after each statement that writes: nothing is there, and the same call then does it all.

    The short form takes some of the points only, but for settle.
    """
    scene = Scene(passing, name)
    if step == "reap":
        passing.advance(100)
    run: Step = STEPS.get(step, lambda session, scene: scene.box.on(session).reap())
    with passing.session() as session:
        _begin(session, 0)
        run(session, scene)
        points = int(str(session.sql("SELECT current_setting('faults.passed') AS passed")[0]["passed"]))
        session.rollback()
    assert points >= 2, f"{step} writes nothing"
    before = scene.contents()
    thinned = 1 if SECONDS or (step, name) == ("settle", "outbox") else 1 + points // 4
    ended = 0
    for point in range(1, points + 1, thinned):
        with passing.session() as session:
            _begin(session, point)
            ended += _is_ended(run, session, scene, point)
        assert scene.contents() == before, f"ended at {point} of {points}"
    assert ended > 0
    with passing.session() as session:
        _begin(session, 0)
        run(session, scene)
        session.commit()
    assert scene.contents() != before
    check(passing, name)
    drain(passing, name)


def _is_ended(run: Step, session: Session, scene: Scene, point: int) -> bool:
    """Whether the call was ended at that point; what marks allow may make it shorter than it was before."""
    try:
        run(session, scene)
    except DatabaseUnavailable:
        return True
    passed = int(str(session.sql("SELECT current_setting('faults.passed') AS passed")[0]["passed"]))
    assert passed < point, f"the backend did not end at {point}"
    session.rollback()
    return False


def _begin(session: Session, ends_at: int) -> None:
    """The same random numbers for each try, and the point at which it ends."""
    session.sql("SELECT setseed(0.5), set_config('faults.passed', '0', false)")
    session.sql("SELECT set_config('faults.ends_at', %s, false)", str(ends_at))
    session.commit()


_HELD_ROWS = {
    "outbox": ("outbox_lease", "outbox_group", "outbox_message", "join_member", "join"),
    "inbox": ("inbox_lease", "inbox_group", "inbox_message"),
}


@pytest.mark.parametrize("name", BOXES)
def test_terminated_while_it_waits(db: Database, name: str) -> None:
    """Another session holds rows or whole tables: whoever waits for them is terminated, without a trace."""
    scene = Scene(db, name)
    before = scene.contents()
    locks = [f'LOCK TABLE {{schema}}."{table}" IN SHARE ROW EXCLUSIVE MODE' for table in before]
    locks += [f'SELECT FROM {{schema}}."{table}" FOR UPDATE' for table in _HELD_ROWS[name]]
    waited: list[str] = []
    for lock in locks:
        with db.session() as holder, db.session() as settling:
            holder.sql(lock)
            settling.sql("SELECT setseed(0.5)")
            settling.commit()
            background = Background(db, settling, scene.settle)
            if background.is_blocked():
                waited.append(lock)
                pid = settling.connection.info.backend_pid
                db.sql("SELECT pg_terminate_backend(%s, 10000)", pid)
                with pytest.raises(DatabaseUnavailable):
                    background.result()
            else:
                background.result()
                settling.rollback()
        assert scene.contents() == before, lock
    # Where it must wait: what it deletes, and what it writes whatever else it does.
    for table in ("lease", "done", "message"):
        assert any(f'"{name}_{table}"' in lock for lock in waited), f"never waited for {table}"
    with db.session() as session:
        scene.settle(session)
        session.commit()
    check(db, name)
    drain(db, name)


def settle_and_commit(session: Session, scene: Scene) -> None:
    """What a worker does."""
    scene.settle(session, claim=0)
    session.commit()


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("point", [2, 3, 4], ids=["begin", "settle", "commit"])
def test_the_connection_is_cut(db: Database, name: str, how: str, point: int) -> None:
    """What the client says does not arrive, or the answer does not: it asks again, and all happened once."""
    scene = Scene(db, name)
    before = scene.contents()
    said = 0

    def cut(count: int) -> str | None:
        nonlocal said
        said = count
        return how if count == point else None

    with proxy(db, cut) as (between, url):
        through = Database(db.dialect, db.schema, url, db.engine_id)
        with through.session() as session:
            pid = session.connection.info.backend_pid
            with pytest.raises((DatabaseUnavailable, psycopg.OperationalError)):
                settle_and_commit(session, scene)
        assert between.cuts == 1
        assert said >= point
    wait_until(
        lambda: not db.sql("SELECT FROM pg_stat_activity WHERE pid = %s", pid), "the backend does not end"
    )
    happened = (how, point) == ("after", 4)
    assert (scene.contents() != before) is happened
    with db.session() as session:
        settle_and_commit(session, scene)
    statuses = [scene.box.status(message) for message in scene.held]
    assert statuses.count("Done") == 3, json.dumps(statuses)
    check(db, name)
    taken = drain(db, name)
    assert len(taken) == len(set(taken))
    assert not set(taken) & {scene.held[0], scene.held[3], scene.held[4], scene.held[5]}
