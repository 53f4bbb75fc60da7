"""The dead are remembered, not counted: by every routine that moves them, as planted bugs show one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pysqlbox.errors import PysqlboxError
from tests.concurrency import scenarios_dead as dead
from tests.concurrency.planting import Bug, planted
from tests.concurrency.sessions import steady
from tests.support.database import Database

Scenario = Callable[[Database], None]

_NOTHING = "DELETE FROM {{ box.tally }} WHERE 1 = 0"
_BURIED = ('{{ queue.count_dead("buried") }}', _NOTHING)
_GONE = ('{{ queue.count_dead("gone", "-") }}', _NOTHING)
_RENEWED = "(VALUES (old.topic, -1), (message.topic, 1))"
_BURIED_IN_TSQL = ('{{ settling.count_dead("@buried") }}', "")
_GONE_IN_TSQL = ('{{ settling.count_dead("@gone", "-") }}', "")
_RENEWED_IN_TSQL = "SELECT b.topic_key, 0, -1 FROM"

POSTGRES: list[tuple[Bug, list[Scenario]]] = [
    (
        Bug("who dies is not noted", "queue/_bury.sql", [_BURIED]),
        [dead.failing, dead.expiring, dead.poisoning, dead.nobody_waits],
    ),
    (
        Bug("who is marked dead is not noted", "queue/_bury.sql", [_BURIED], "inbox"),
        [dead.marking_dead],
    ),
    (Bug("a replay is not noted", "queue/replay.sql", [_GONE]), [dead.replaying, dead.storming]),
    (
        Bug("a discard is not noted", "queue/discard.sql", [_GONE]),
        [dead.discarding, dead.folding, dead.rolling_back],
    ),
    (Bug("a cleanup is not noted", "queue/cleanup_dead.sql", [_GONE]), [dead.cleaning_up]),
    (
        Bug(
            "a new topic is not noted", "inbox/_renew.sql", [(_RENEWED, "(VALUES (old.topic, -1))")], "inbox"
        ),
        [dead.renewing],
    ),
    (
        Bug(
            "an old topic keeps it", "inbox/_renew.sql", [(_RENEWED, "(VALUES (message.topic, 1))")], "inbox"
        ),
        [dead.renewing],
    ),
    (
        Bug("a fold forgets them", "queue/_tick.sql", [("sum(folded.dead) AS dead", "0 AS dead")]),
        [dead.folding],
    ),
    (
        Bug(
            "a fold keeps those of done ones alone",
            "queue/_tick.sql",
            [("WHERE f.done <> 0 OR f.dead <> 0", "WHERE f.done <> 0")],
        ),
        [dead.folding],
    ),
]
TSQL: list[tuple[Bug, list[Scenario]]] = [
    (
        Bug("who dies is not noted", "queue/_bury.sql", [_BURIED_IN_TSQL]),
        [dead.failing, dead.expiring, dead.poisoning],
    ),
    (Bug("a replay is not noted", "queue/replay.sql", [_GONE_IN_TSQL]), [dead.replaying]),
    (Bug("a discard is not noted", "queue/discard.sql", [_GONE_IN_TSQL]), [dead.discarding]),
    (Bug("a cleanup is not noted", "queue/cleanup_dead.sql", [_GONE_IN_TSQL]), [dead.cleaning_up]),
    (
        Bug(
            "an old topic keeps it",
            "inbox/_renew.sql",
            [(_RENEWED_IN_TSQL, "SELECT b.topic_key, 0, 0 FROM")],
            "inbox",
        ),
        [dead.renewing],
    ),
    (
        Bug("a fold forgets them", "queue/_tick.sql", [("dead = t.dead + s.dead", "dead = t.dead")]),
        [dead.folding],
    ),
    (
        Bug(
            "a first fold forgets them",
            "queue/_tick.sql",
            [("SELECT s.topic_key, s.done, s.dead", "SELECT s.topic_key, s.done, 0")],
        ),
        [dead.folding],
    ),
]


def _each(listed: list[tuple[Bug, list[Scenario]]]) -> list[object]:
    return [
        pytest.param(bug, scenario, id=f"{bug.name}-{scenario.__name__}".replace(" ", "_"))
        for bug, scenarios in listed
        for scenario in scenarios
    ]


@pytest.mark.parametrize("scenario", dead.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_dead_are_told_as_they_lie_there(scenario: Scenario, db: Database) -> None:
    scenario(db)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(("bug", "scenario"), _each(POSTGRES))
def test_a_routine_that_forgets_is_found(bug: Bug, scenario: Scenario, db: Database, tmp_path: Path) -> None:
    steady(db)
    with planted(db, bug, tmp_path), pytest.raises((AssertionError, PysqlboxError)):
        scenario(db)


@pytest.mark.dialect("mssql")
@pytest.mark.parametrize(("bug", "scenario"), _each(TSQL))
def test_a_procedure_that_forgets_is_found(
    bug: Bug, scenario: Scenario, db: Database, tmp_path: Path
) -> None:
    with planted(db, bug, tmp_path), pytest.raises((AssertionError, PysqlboxError)):
        scenario(db)
