"""Groups in T-SQL: nobody waits for a group's lock, and none loses its place by that; and planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from pysqlbox.errors import PysqlboxError
from tests.concurrency.invariants import check
from tests.concurrency.planting import Bug, planted
from tests.concurrency.scenarios_claims import outbox
from tests.contract.support import OTHER, OWNER, Box, impatient, server_now
from tests.support.database import Database

pytestmark = pytest.mark.dialect("mssql")

Scenario = Callable[[Database], None]


def an_ack_does_not_wait_for_an_open_claim(db: Database) -> None:
    """A stranger's claim has dropped a surplus ticket of the group, and is still open."""
    box = outbox(db)
    first = box.put(group_id="g")
    assert box.take(OWNER) == [first]
    second = box.put(group_id="g")
    with db.session() as stranger, db.session() as worker:
        assert box.on(stranger).take(OTHER) == []
        assert box.on(impatient(worker)).ack(OWNER, [first]) == 1
        worker.commit()
        stranger.commit()
    check(db, "outbox")
    assert _soon(box) == [second]
    check(db, "outbox")


def an_ack_does_not_wait_for_an_open_collapse(db: Database) -> None:
    """A stranger's enqueue replaces a member that waits behind the one that is acknowledged."""
    box = outbox(db)
    first = box.put(group_id="g")
    assert box.take(OWNER) == [first]
    box.put(group_id="g", collapse_key="k")
    last = box.put(group_id="g")
    with db.session() as producer, db.session() as worker:
        newer = box.on(producer).put(collapse_key="k")
        assert box.on(impatient(worker)).ack(OWNER, [first]) == 1
        worker.commit()
        producer.commit()
    check(db, "outbox")
    assert sorted(_soon(box)) == sorted([newer, last])
    check(db, "outbox")


def two_parts_of_a_group_are_settled_at_once(db: Database) -> None:
    """Neither sees that the other is going; the group is not lost between them."""
    box = outbox(db)
    made = box.fill(3, group_id="g")
    assert box.take(batch=2) == made[:2]
    with db.session() as one, db.session() as other:
        assert box.on(one).ack(OWNER, made[:1]) == 1
        assert box.on(impatient(other)).ack(OWNER, made[1:2]) == 1
        one.commit()
        other.commit()
    check(db, "outbox")
    assert _soon(box, OTHER) == made[2:]
    check(db, "outbox")


def a_head_that_goes_while_another_member_comes(db: Database) -> None:
    """Its ticket stands where the head's topic put it; that one is paused, and the head is gone."""
    box = outbox(db)
    box.put(topic="p", group_id="g", collapse_key="k")
    with db.session() as replacing, db.session() as adding:
        box.on(replacing).put(topic="p", collapse_key="k")
        added = box.on(impatient(adding)).put(topic="q", group_id="g")
        replacing.commit()
        adding.commit()
    assert box.affected("pause", topic="p") == 1
    check(db, "outbox")
    assert _soon(box) == [added]
    assert box.affected("resume", topic="p") == 1


def a_head_that_goes_while_it_waits_for_its_time(db: Database) -> None:
    """The same where the head's due time put the ticket."""
    box = outbox(db)
    box.put(group_id="g", collapse_key="k", due_at=server_now(db) + timedelta(seconds=1000))
    with db.session() as replacing, db.session() as adding:
        newer = box.on(replacing).put(collapse_key="k")
        added = box.on(impatient(adding)).put(group_id="g")
        replacing.commit()
        adding.commit()
    check(db, "outbox")
    assert sorted(_soon(box)) == sorted([newer, added])


def nobody_overtakes_a_head_that_is_being_attached(db: Database) -> None:
    """An open attachment holds the group's head: a claim hands out neither that nor what is behind it."""
    box = outbox(db)
    made = box.fill(3, group_id="g")
    behind = box.put()
    join = db.call("join_start", tenant_id="t", expected_steps=1)[0]["join_id"]
    message = box.get(made[0])["message_id"]
    with db.session() as attaching:
        attaching.call("join_attach", join_id=join, message_id=message)
        assert box.take() == [behind]
        attaching.commit()
    check(db, "outbox")
    assert _soon(box) == made


_WAITING = '{{ locks.wait(locks.group("(SELECT MIN(g.group_key) FROM @group AS g)"), "group") }}'
_ATTEMPT = "{{ groups.attempt_all() }}"

PLANTED: list[tuple[Bug, Scenario]] = [
    (
        Bug("an ack waits for a group", "queue/_lock_groups.sql", [(_ATTEMPT, _WAITING)]),
        an_ack_does_not_wait_for_an_open_claim,
    ),
    (
        Bug("an ack waits for a collapse", "queue/_lock_groups.sql", [(_ATTEMPT, _WAITING)]),
        an_ack_does_not_wait_for_an_open_collapse,
    ),
    (
        Bug(
            "parts of a group are settled apart",
            "queue/_regroup.sql",
            [(_ATTEMPT, "SET @lock_got = 0;")],
        ),
        two_parts_of_a_group_are_settled_at_once,
    ),
    (
        Bug(
            "a group whose head may go is not looked at again",
            "queue/_admit.sql",
            [("THEN 1 ELSE 0 END\n    FROM (", "THEN 0 ELSE 0 END\n    FROM (")],
        ),
        a_head_that_goes_while_another_member_comes,
    ),
    (
        Bug(
            "a group whose delayed head may go is not looked at again",
            "queue/_admit.sql",
            [("THEN 1 ELSE 0 END\n    FROM (", "THEN 0 ELSE 0 END\n    FROM (")],
        ),
        a_head_that_goes_while_it_waits_for_its_time,
    ),
    (
        Bug("a claim without a lock", "queue/_claim_groups.sql", [(_ATTEMPT, "SET @lock_got = 0;")]),
        nobody_overtakes_a_head_that_is_being_attached,
    ),
]


@pytest.mark.parametrize("scenario", [scenario for _, scenario in PLANTED], ids=lambda one: one.__name__)
def test_groups_keep_their_promises(scenario: Scenario, db: Database) -> None:
    scenario(db)


@pytest.mark.parametrize(("bug", "scenario"), PLANTED, ids=[bug.name.replace(" ", "_") for bug, _ in PLANTED])
def test_planted_bug(bug: Bug, scenario: Scenario, db: Database, tmp_path: Path) -> None:
    """The scenario goes red."""
    with planted(db, bug, tmp_path), pytest.raises((AssertionError, PysqlboxError)):
        scenario(db)


def _soon(box: Box, owner: UUID = OWNER) -> list[int]:
    """What a claim gets once the groups that needed another look have been looked at."""
    box.db.advance(1)
    return box.take(owner, batch=10)
