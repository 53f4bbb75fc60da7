"""Races about FIFO groups, each played step by step on open transactions.

Each function fails if the guard that it is about is missing; `test_planted_bugs` removes the guards.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from tests.concurrency.invariants import check
from tests.concurrency.scenarios_claims import inbox, outbox
from tests.concurrency.sessions import GATE, Background, hasty, patient, sessions
from tests.contract.support import OTHER, OWNER, Box, server_now
from tests.support.database import Database

PROBE = 0.25
"""Seconds after which a group that needed another look has been looked at."""


def a_member_added_while_the_group_empties(db: Database) -> None:
    """A producer adds a member to a group that is held; the last lease is acknowledged before it commits."""
    box = outbox(db)
    first = box.put(group_id="g")
    assert box.take() == [first]
    with sessions(db, 2) as (producer, worker):
        added = box.on(producer).put(group_id="g")
        assert box.on(hasty(worker)).ack(OWNER, [first]) == 1
        worker.commit()
        producer.commit()
    check(db, "outbox")
    assert _soon(box) == [added]


def a_member_added_while_the_group_ends(db: Database) -> None:
    """The other way round: the group's end is not committed yet when a producer adds a member."""
    box = outbox(db)
    first = box.put(group_id="g")
    assert box.take() == [first]
    with sessions(db, 2) as (producer, worker):
        assert box.on(worker).ack(OWNER, [first]) == 1
        added = box.on(hasty(producer)).put(group_id="g")
        producer.commit()
        worker.commit()
    check(db, "outbox")
    assert _soon(box) == [added]


def a_head_added_below_a_delayed_one(db: Database) -> None:
    """A producer with a lower id commits after the group was put aside until a delayed member is due."""
    box = outbox(db)
    first = box.put(group_id="g")
    assert box.take() == [first]
    with sessions(db, 1) as (producer,):
        added = box.on(producer).put(group_id="g")
        later = box.put(group_id="g", due_at=server_now(db) + timedelta(seconds=1000))
        assert box.ack(OWNER, [first]) == 1
        producer.commit()
    assert added < later
    check(db, "outbox")
    assert _soon(box) == [added]


def a_delayed_head_collapsed_away(db: Database) -> None:
    """The member behind a delayed head may go once a newer message has replaced the head."""
    box = outbox(db)
    first = box.put(group_id="g")
    assert box.take() == [first]
    box.put(group_id="g", collapse_key="k", due_at=server_now(db) + timedelta(seconds=1000))
    behind = box.put(group_id="g")
    assert box.ack(OWNER, [first]) == 1
    assert box.take() == []
    newer = box.put(collapse_key="k")
    assert sorted(_soon(box) + _soon(box)) == sorted([behind, newer])
    check(db, "outbox")


def two_producers_of_a_new_group(db: Database) -> None:
    """Both put out a ticket, neither sees the other; one owner at a time gets the group, in order."""
    box = outbox(db)
    with sessions(db, 4) as (one, other, worker, rival):
        first = box.on(one).put(group_id="g")
        second = box.on(hasty(other)).put(group_id="g")
        one.commit()
        other.commit()
        # Two tickets: the second claim meets one while the first claim, with the other, is still open.
        assert box.on(worker).take(OWNER, batch=1) == [first]
        assert box.on(hasty(rival)).take(OTHER, batch=1) == []
        rival.commit()
        worker.commit()
    check(db, "outbox")
    assert box.take(OTHER) == []
    assert box.ack(OWNER, [first]) == 1
    assert _soon(box, OTHER) == [second]
    check(db, "outbox")


def a_second_ticket_of_a_held_group(db: Database) -> None:
    """A claim that meets a ticket of a group whose lease is committed drops it."""
    box = outbox(db)
    with sessions(db, 2) as (one, other):
        first = box.on(one).put(group_id="g")
        second = box.on(other).put(group_id="g")
        one.commit()
        other.commit()
    assert box.take(OWNER, batch=1) == [first]
    assert box.take(OTHER, batch=1) == []
    assert box.ack(OWNER, [first]) == 1
    assert _soon(box, OTHER) == [second]
    check(db, "outbox")


def two_tickets_of_a_known_group(db: Database) -> None:
    """An open claim has the group by one ticket; a claim with another neither waits nor gets it."""
    box = outbox(db)
    made = box.fill(3, group_id="g")
    assert box.take(OWNER, batch=1) == made[:1]
    assert box.release(OWNER, made[:1]) == 1
    db.sql(
        "INSERT INTO {schema}.outbox_ready (lane, ticket, topic, group_id)"
        " VALUES (0, nextval('{schema}._outbox_ids'), 't', 'g')"
    )
    with sessions(db, 2) as (worker, rival):
        assert box.on(worker).take(OWNER, batch=1) == made[:1]
        assert box.on(hasty(rival)).take(OTHER, batch=2) == []
        rival.commit()
        worker.commit()
    check(db, "outbox")
    assert box.take(OTHER) == []
    assert box.ack(OWNER, made[:1]) == 1
    assert _soon(box, OTHER) == made[1:]


def a_ticket_met_while_the_group_ends(db: Database) -> None:
    """A settlement has found no member; before it commits a member comes, whose ticket a claim meets."""
    box = outbox(db)
    (first,) = box.fill(1, group_id="g")
    assert box.take() == [first]
    with sessions(db, 1) as (worker,):
        assert box.on(worker).ack(OWNER, [first]) == 1
        added = box.put(group_id="g")
        assert box.take(OTHER) == []
        worker.commit()
    check(db, "outbox")
    assert _soon(box, OTHER) == [added]


def a_ticket_met_between_two_looks(db: Database) -> None:
    """The same, and the settlement commits after the claim has seen the lease, before it has the lock."""
    box = outbox(db)
    (first,) = box.fill(1, group_id="g")
    assert box.take() == [first]
    with sessions(db, 3) as (gate, worker, rival):
        gate.sql("SELECT 1 AS one FROM pg_advisory_xact_lock(%s)", GATE)
        assert box.on(worker).ack(OWNER, [first]) == 1
        added = box.put(group_id="g")
        waiting = Background(db, patient(rival), lambda session: box.on(session).take(OTHER))
        waiting.is_blocked()
        worker.commit()
        gate.rollback()
        assert waiting.result() == []
        rival.commit()
    check(db, "outbox")
    assert _soon(box, OTHER) == [added]


def a_member_added_between_two_looks(db: Database) -> None:
    """A producer sees that its group is held; the last lease is settled before it has locked the group."""
    box = outbox(db)
    (first,) = box.fill(1, group_id="g")
    assert box.take() == [first]
    with sessions(db, 2) as (gate, producer):
        gate.sql("SELECT 1 AS one FROM pg_advisory_xact_lock(%s)", GATE)
        waiting = Background(db, patient(producer), lambda session: box.on(session).put(group_id="g"))
        waiting.is_blocked()
        assert box.ack(OWNER, [first]) == 1
        gate.rollback()
        added = waiting.result()
        producer.commit()
    check(db, "outbox")
    assert _soon(box) == [added]


def a_head_of_another_topic_comes_late(db: Database) -> None:
    """A producer's message becomes the head of a group whose ticket stands under a later one's topic."""
    box = outbox(db)
    first = box.put("q", group_id="g")
    assert box.take() == [first]
    with sessions(db, 1) as (producer,):
        second = box.on(producer).put("q", group_id="g")
        third = box.put("p", group_id="g")
        assert box.ack(OWNER, [first]) == 1
        producer.commit()
    found: list[int] = []
    for _ in range(4):
        found += box.take(OTHER, topics=["q"])
        db.advance(PROBE)
    assert found == [second]
    assert box.ack(OTHER, found) == 1
    assert _soon(box, OTHER) == [third]
    check(db, "outbox")


def a_new_group_entered_under_two_heads(db: Database) -> None:
    """A claim has entered a group whose head changes before it commits: another claim does not wait."""
    box = outbox(db)
    with sessions(db, 3) as (producer, worker, rival):
        first = box.on(producer).put(group_id="g")
        second = box.put(group_id="g")
        assert box.on(worker).take(OWNER) == [second]
        producer.commit()
        rival.sql("SET statement_timeout = '5s'")
        rival.commit()
        assert box.on(rival).take(OTHER) == []
        rival.commit()
        worker.commit()
    assert box.ack(OWNER, [second]) == 1
    check(db, "outbox")
    assert _soon(box, OTHER) == [first]


def a_group_claimed_between_two_looks(db: Database) -> None:
    """A claim has seen that nobody holds a group; before it locks the group another claim has it."""
    box = outbox(db)
    made = box.fill(2, group_id="g")
    held = box.put(group_id="h")
    assert box.take(OWNER) == [*made, held]
    assert box.release(OWNER, made) == 2
    for group in "ghg":
        _add_ticket(db, group)
    with sessions(db, 3) as (locker, onlooker, worker):
        # The other group is held and its row is locked, so the claim leaves a probe for it, and waits there.
        locker.sql("SELECT 1 AS one FROM {schema}.outbox_group WHERE group_id = 'h' FOR UPDATE")
        onlooker.sql("LOCK TABLE {schema}.outbox_scheduled IN SHARE ROW EXCLUSIVE MODE")
        waiting = Background(db, patient(worker), lambda session: box.on(session).take(OTHER, batch=3))
        assert waiting.is_blocked()
        assert box.take(OWNER, batch=1) == made[:1]
        onlooker.rollback()
        assert waiting.result() == []
        worker.commit()
        locker.rollback()
    check(db, "outbox")


def _add_ticket(db: Database, group: str) -> None:
    db.sql(
        "INSERT INTO {schema}.outbox_ready (lane, ticket, topic, group_id)"
        " VALUES (0, nextval('{schema}._outbox_ids'), 't', %s)",
        group,
    )


def tickets_of_groups_that_have_ended(db: Database) -> None:
    """A claim drops them at once, however many; a member that is just being added is not lost with them."""
    box = outbox(db)
    db.sql(
        "INSERT INTO {schema}.outbox_ready (lane, ticket, topic, group_id)"
        " SELECT 0, nextval('{schema}._outbox_ids'), 't', 'g' || n FROM generate_series(1, 500) AS n"
    )
    with sessions(db, 1) as (producer,):
        made = box.on(producer).put(group_id="g7")
        assert box.take(batch=500) == []
        left = db.sql(
            "SELECT group_id FROM {schema}.outbox_scheduled"
            " UNION ALL SELECT group_id FROM {schema}.outbox_ready"
        )
        assert left == []
        producer.commit()
    check(db, "outbox")
    assert box.take() == [made]
    check(db, "outbox")


def a_new_group_looked_at_while_it_ends(db: Database) -> None:
    """A claim buries a new group's only member and is open when another meets the second ticket."""
    box = outbox(db)
    box.put(group_id="g", expires_at=server_now(db) + timedelta(seconds=10))
    with sessions(db, 2) as (producer, worker):
        second = box.on(producer).put(group_id="g")
        db.advance(20)
        assert box.on(worker).take() == []
        producer.commit()
        assert box.take(OTHER) == []
        worker.commit()
    check(db, "outbox")
    assert _soon(box, OTHER) == [second]


def many_new_groups_at_once(db: Database) -> None:
    """A claim enters as many new groups as it has room for, at once."""
    box = outbox(db)
    records = [box.record(group_id=f"g{n}") for n in range(260)]
    made = [int(row["id"]) for row in box.enqueue_many(*records)]
    assert box.take(batch=300) == made
    check(db, "outbox")


def a_group_settled_in_two_parts(db: Database) -> None:
    """Two parts of a leased batch are acknowledged at once: the second sees that the group is free."""
    box = outbox(db)
    made = box.fill(3, group_id="g")
    assert box.take(batch=2) == made[:2]
    with sessions(db, 2) as (one, other):
        assert box.on(one).ack(OWNER, made[:1]) == 1
        waiting = Background(db, other, lambda session: box.on(session).ack(OWNER, made[1:2]))
        waiting.is_blocked()
        one.commit()
        assert waiting.result() == 1
        other.commit()
    check(db, "outbox")
    assert box.take(OTHER) == made[2:]


def a_group_reaped_while_it_is_settled(db: Database) -> None:
    """One member of a leased batch is being acknowledged while a reap meets the others."""
    box = outbox(db)
    made = box.fill(3, group_id="g")
    assert box.take(batch=2, lease=5) == made[:2]
    db.advance(10)
    with sessions(db, 2) as (late, reaper):
        assert box.on(late).ack(OWNER, made[:1]) == 1
        assert box.on(hasty(reaper)).reap() == 0
        reaper.commit()
        late.commit()
    check(db, "outbox")
    assert box.reap() == 1
    check(db, "outbox")
    assert box.take(OTHER) == made[1:]


def a_group_marked_while_it_is_settled(db: Database) -> None:
    """One member of a batch is marked by its key while its owner acknowledges the other."""
    box = inbox(db)
    made = [box.put(group_id="g", source="s", message_id=f"m{n}") for n in range(3)]
    assert box.take(batch=2) == made[:2]
    with sessions(db, 2) as (one, other):
        assert box.on(one).affected("mark_processed", source="s", message_id="m0") == 1
        waiting = Background(db, other, lambda session: box.on(session).ack(OWNER, made[1:2]))
        waiting.is_blocked()
        one.commit()
        assert waiting.result() == 1
        other.commit()
    check(db, "inbox")
    assert box.take(OTHER) == made[2:]


def a_group_marked_after_part_is_settled(db: Database) -> None:
    """The other way round: the owner's acknowledgement is open when the other member is marked by its key."""
    box = inbox(db)
    made = [box.put(group_id="g", source="s", message_id=f"m{n}") for n in range(3)]
    assert box.take(batch=2) == made[:2]
    with sessions(db, 2) as (one, other):
        assert box.on(one).ack(OWNER, made[1:2]) == 1
        waiting = Background(
            db, other, lambda session: box.on(session).affected("mark_processed", source="s", message_id="m0")
        )
        waiting.is_blocked()
        one.commit()
        assert waiting.result() == 1
        other.commit()
    check(db, "inbox")
    assert box.take(OTHER) == made[2:]


def a_retry_blocks_its_group(db: Database) -> None:
    """Nobody overtakes the member that waits for its retry, however many tickets its group has."""
    box = outbox(db)
    made = box.fill(3, group_id="g")
    assert box.take(batch=1) == made[:1]
    assert box.abandon(OWNER, made[:1], delay_seconds=50) == 1
    db.sql(
        "INSERT INTO {schema}.outbox_ready (lane, ticket, topic, group_id)"
        " VALUES (0, nextval('{schema}._outbox_ids'), 't', 'g')"
    )
    assert box.take() == []
    check(db, "outbox")
    db.advance(100)
    assert box.take() == made


def a_retry_that_ends_its_head_lets_the_group_go_on(db: Database) -> None:
    """Those behind a head that has had enough are handed out, whether all that was held ended or a part."""
    box = outbox(db)
    made = box.fill(4, group_id="g")
    assert box.take(batch=1) == made[:1]
    assert box.retry(OWNER, made[:1], max_attempts=1) == (1, 1)
    check(db, "outbox")
    assert box.take(batch=1) == made[1:2]
    assert box.retry(OWNER, made[1:2], delay_seconds=1) == (1, 0)
    db.advance(5)
    assert box.take(batch=2) == made[1:3]
    assert box.retry(OWNER, made[1:3], max_attempts=2, delay_seconds=1) == (2, 1)
    check(db, "outbox")
    assert box.take() == []
    db.advance(5)
    assert box.take() == made[2:]


def a_release_with_a_delay_blocks_its_group(db: Database) -> None:
    """Nobody overtakes a head that was handed back for later."""
    box = outbox(db)
    made = box.fill(3, group_id="g")
    assert box.take(batch=1) == made[:1]
    assert box.release(OWNER, made[:1], delay_seconds=50) == 1
    _add_ticket(db, "g")
    assert box.take() == []
    check(db, "outbox")
    db.advance(100)
    assert box.take() == made


def a_retry_locks_the_group_before_the_lease(db: Database) -> None:
    """The lock order, for a retry that ends one and keeps one."""
    _locks_group_first(db, lambda box, held: box.retry(OWNER, held, max_attempts=1))


def an_ack_locks_the_group_before_the_lease(db: Database) -> None:
    """The lock order: whoever settles waits for the group while the lease is still free."""
    _locks_group_first(db, lambda box, held: box.ack(OWNER, held))


def an_abandon_locks_the_group_before_the_lease(db: Database) -> None:
    """The same for an abandon."""
    _locks_group_first(db, lambda box, held: box.abandon(OWNER, held))


def a_release_locks_the_group_before_the_lease(db: Database) -> None:
    """The same for a release."""
    _locks_group_first(db, lambda box, held: box.release(OWNER, held))


def a_fail_locks_the_group_before_the_lease(db: Database) -> None:
    """The same for a fail."""
    _locks_group_first(db, lambda box, held: box.fail(OWNER, held))


def a_settle_locks_the_group_before_the_lease(db: Database) -> None:
    """The same for a settle with mixed outcomes."""
    _locks_group_first(
        db,
        lambda box, held: box.settle(
            OWNER, [{"id": held[0], "result": "ack"}, {"id": held[1], "result": "abandon"}]
        ),
    )


def _locks_group_first(db: Database, step: Callable[[Box, list[int]], object]) -> None:
    box = outbox(db)
    made = box.fill(2, group_id="g")
    assert box.take() == made
    with sessions(db, 3) as (holder, worker, onlooker):
        holder.sql("SELECT 1 FROM {schema}.outbox_group WHERE group_id = 'g' FOR NO KEY UPDATE")
        waiting = Background(db, worker, lambda session: step(box.on(session), made))
        assert waiting.is_blocked(), "it does not wait for the group"
        locks = db.sql(
            "SELECT c.relname AS name FROM pg_locks AS k INNER JOIN pg_class AS c ON c.oid = k.relation"
            " WHERE k.locktype = 'tuple' AND c.relname IN ('outbox_group', 'outbox_lease')"
        )
        assert [row["name"] for row in locks] in ([], ["outbox_group"])
        free = onlooker.sql("SELECT id FROM {schema}.outbox_lease ORDER BY id FOR UPDATE NOWAIT")
        assert [row["id"] for row in free] == made, "it has locked leases before the group"
        onlooker.rollback()
        holder.rollback()
        waiting.result()
        worker.commit()
    check(db, "outbox")


def _soon(box: Box, owner: object = OWNER, batch: int = 10) -> list[int]:
    """What a claim gets at once, or once the groups that needed another look have been looked at."""
    found = [int(row["id"]) for row in box.claim(owner, batch_size=batch)]
    if not found:
        time.sleep(PROBE)
        found = [int(row["id"]) for row in box.claim(owner, batch_size=batch)]
    return found


SCENARIOS: tuple[Callable[[Database], None], ...] = (
    a_member_added_while_the_group_empties,
    a_member_added_while_the_group_ends,
    a_head_added_below_a_delayed_one,
    a_delayed_head_collapsed_away,
    two_producers_of_a_new_group,
    a_second_ticket_of_a_held_group,
    a_ticket_met_while_the_group_ends,
    a_ticket_met_between_two_looks,
    a_member_added_between_two_looks,
    a_head_of_another_topic_comes_late,
    a_new_group_entered_under_two_heads,
    a_group_claimed_between_two_looks,
    tickets_of_groups_that_have_ended,
    two_tickets_of_a_known_group,
    a_new_group_looked_at_while_it_ends,
    many_new_groups_at_once,
    a_group_settled_in_two_parts,
    a_group_reaped_while_it_is_settled,
    a_group_marked_while_it_is_settled,
    a_group_marked_after_part_is_settled,
    a_retry_blocks_its_group,
    a_retry_that_ends_its_head_lets_the_group_go_on,
    a_release_with_a_delay_blocks_its_group,
    a_retry_locks_the_group_before_the_lease,
    an_ack_locks_the_group_before_the_lease,
    an_abandon_locks_the_group_before_the_lease,
    a_release_locks_the_group_before_the_lease,
    a_fail_locks_the_group_before_the_lease,
    a_settle_locks_the_group_before_the_lease,
)
