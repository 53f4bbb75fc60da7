"""Schedules that many set and fire at once, on every engine: each planned time fires once, none is lost."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from pysqlbox.errors import DatabaseUnavailable, PysqlboxError
from tests.concurrency.planting import Bug, planted
from tests.contract.support import Box, headers_of, is_babelfish
from tests.support.database import Database, Session

Scenario = Callable[[Database], None]
START = datetime(2026, 3, 1, tzinfo=UTC)
STEP = timedelta(seconds=60)


def outbox_of(db: Database) -> Box:
    """The default outbox."""
    return Box("outbox", "outbox", db, db)


def set_up(box: Box, **more: object) -> None:
    """Sets a schedule of every minute."""
    box.one("schedule_set", **{"name": "s", "topic": "t", "payload": "p", "every_seconds": 60} | more)


def fired(box: Box) -> Counter[datetime]:
    """How often each planned time was fired."""
    rows = box.caller.sql("SELECT headers FROM {schema}.outbox_messages")
    found: list[Any] = [headers_of(row) for row in rows]
    return Counter(datetime.fromisoformat(headers["scheduled_for"]) for headers in found)


def at_once(db: Database, rivals: list[Callable[[Box, Session], None]]) -> None:
    """Runs each in a session of its own, all beginning together."""
    barrier = Barrier(len(rivals))

    def run(rival: Callable[[Box, Session], None]) -> None:
        with db.session() as session:
            box = outbox_of(db).on(session)
            box.call("schedule_list")
            session.commit()
            barrier.wait(120)
            rival(box, session)

    with ThreadPoolExecutor(len(rivals)) as pool:
        for each in [pool.submit(run, rival) for rival in rivals]:
            each.result(300)


def a_name_is_decided_by_its_first_setting(db: Database) -> None:
    """Who sets the same new name meanwhile waits, and replaces what the first has left."""
    box = outbox_of(db)
    for ends in ("commit", "rollback"):
        with db.session() as first, db.session() as session, ThreadPoolExecutor(1) as pool:
            second = box.on(session)
            set_up(second)  # a procedure's first call in a session takes Babelfish seconds
            session.rollback()
            set_up(box.on(first), topic="first", next_at=START)
            waiting = pool.submit(set_up, second, topic="second")
            with contextlib.suppress(TimeoutError):
                waiting.result(1)
            assert not waiting.done()
            first.commit() if ends == "commit" else first.rollback()
            waiting.result(60)
            session.commit()
        (row,) = box.call("schedule_list")
        assert row["topic"] == "second"
        assert (row["next_at"] == START) is (ends == "commit"), "by the first's rule, if that is there"
        box.call("schedule_remove", name="s")


def each_time_is_fired_once(db: Database) -> None:
    """Some commit, some think better of it, one passes a time over now and then."""
    box = outbox_of(db)
    rivals, times = (3, 6) if is_babelfish(db) else (8, 60)
    set_up(box, next_at=START)
    skipped: list[datetime] = []

    def worker(seed: int) -> Callable[[Box, Session], None]:
        random_ = random.Random(seed)

        def run(mine: Box, session: Session) -> None:
            at = START
            while at < START + times * STEP:
                arguments = {"name": "s", "due_at": at, "next_at": at + STEP}
                wish = random_.random()
                if wish < 0.1:
                    moved = mine.affected("schedule_skip", **arguments) == 1
                    session.commit()
                    if moved:
                        skipped.append(at)
                    at += STEP
                elif wish < 0.3:
                    mine.one("schedule_fire", **arguments)
                    session.rollback()
                else:
                    mine.one("schedule_fire", **arguments)
                    session.commit()
                    at += STEP

        return run

    at_once(db, [worker(seed) for seed in range(rivals)])
    found = fired(box)
    assert set(found.values()) <= {1}
    assert sorted([*found, *skipped]) == [START + number * STEP for number in range(times)]


def setting_again_neither_loses_nor_repeats_a_time(db: Database) -> None:
    """A program that sets its schedule whenever it starts, beside workers that fire it."""
    box = outbox_of(db)
    times = 6 if is_babelfish(db) else 60
    set_up(box, next_at=START)

    def worker(mine: Box, session: Session) -> None:
        at = START
        while at < START + times * STEP:
            mine.one("schedule_fire", name="s", due_at=at, next_at=at + STEP)
            session.commit()
            at += STEP

    def program(mine: Box, session: Session) -> None:
        for number in range(times):
            try:
                set_up(mine, topic=f"t{number}")
            except DatabaseUnavailable:  # a deadlock's victim
                session.rollback()
            else:
                session.commit()

    at_once(db, [worker, program, worker])
    assert fired(box) == Counter(START + number * STEP for number in range(times))
    (row,) = box.call("schedule_list")
    assert row["next_at"] == START + times * STEP


SCENARIOS: list[Scenario] = [
    a_name_is_decided_by_its_first_setting,
    each_time_is_fired_once,
    setting_again_neither_loses_nor_repeats_a_time,
]

PLANTED_IN_T_SQL: list[tuple[Bug, Scenario]] = [
    (
        Bug(
            "a schedule's name without its lock",
            "outbox/schedule_set.sql",
            [('{{ locks.wait(locks.key("schedule", "@schedule_key"), "name") }}', "")],
        ),
        a_name_is_decided_by_its_first_setting,
    ),
    (
        Bug("firing compares nothing", "outbox/schedule_fire.sql", [(" AND s.next_at = @due", "")]),
        each_time_is_fired_once,
    ),
    (
        Bug(
            "setting again begins anew",
            "outbox/schedule_set.sql",
            [("WHEN @next_at IS NULL\n", "WHEN 1 = 0\n")],
        ),
        setting_again_neither_loses_nor_repeats_a_time,
    ),
]
"""Each guard that is taken out turns its scenario red."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.__name__ for each in SCENARIOS])
def test_schedules_at_once(scenario: Scenario, db: Database) -> None:
    scenario(db)


@pytest.mark.dialect("mssql")
@pytest.mark.parametrize(
    ("bug", "scenario"), PLANTED_IN_T_SQL, ids=[bug.name.replace(" ", "_") for bug, _ in PLANTED_IN_T_SQL]
)
def test_planted_bug(bug: Bug, scenario: Scenario, db: Database, tmp_path: Path) -> None:
    """The scenario goes red."""
    with planted(db, bug, tmp_path), pytest.raises((AssertionError, PysqlboxError)):
        scenario(db)
