"""Random steps against a database and the model at once, compared after every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pysqlbox.errors import InvalidState
from tests.concurrency.invariants import check, drain
from tests.concurrency.model import DEDUP_WINDOW, MAX_ATTEMPTS, STEP, Message, Model
from tests.contract.support import OTHER, OWNER, Box, Row, ids, server_now
from tests.support.database import Database

TOPICS = ("a", "b")
SLACK = 45
"""Real seconds that a run may take."""

OUTCOMES: dict[str, Row] = {
    "ack": {"result": "ack"},
    "abandon": {"result": "abandon", "delay_seconds": 50},
    "fail": {"result": "fail"},
    "release": {"result": "release"},
    "release later": {"result": "release", "delay_seconds": 50},
    "retry": {"result": "retry", "delay_seconds": 50},
    "retry once": {"result": "retry", "delay_seconds": 50, "max_attempts": 2},
}
"""What a settlement may do to a message."""

OVER = ("dead", "expired", "cancelled")
"""The states that a replay brings back."""

owners = st.sampled_from((OWNER, OTHER))
picks = st.lists(st.integers(0, 30), max_size=6)
leases = st.sampled_from((50, 150))
topic_sets = st.sampled_from((None, None, None, ["a"], ["b"], ["a", "b"], []))
common: dict[str, Any] = {
    "topic": st.sampled_from(TOPICS),
    "due": st.sampled_from((None, None, None, -50, 50, 150)),
    "expires": st.sampled_from((None, None, None, None, -50, 50, 150)),
    "priority": st.sampled_from((0, 0, 0, 5, -5)),
    "group": st.sampled_from((None, None, "g", "h")),
    "collapse": st.sampled_from((None, None, None, "c", "d")),
}


class BoxMachine(RuleBasedStateMachine):
    """What an outbox and an inbox have in common."""

    fresh: ClassVar[Callable[[], Database]]
    name: ClassVar[Any]

    def __init__(self) -> None:
        """Empties the box and begins at time 0."""
        super().__init__()
        self.db = type(self).fresh()
        self.box = Box(self.name, self.name, self.db, self.db)
        self.base = server_now(self.db)
        self.model = Model()
        for name, value in (
            ("backoff_base_seconds", "50"),
            ("backoff_cap_seconds", "60"),
            ("dedup_window_seconds", str(DEDUP_WINDOW)),
            ("max_attempts", str(MAX_ATTEMPTS)),
        ):
            self.box.configure(name, value)

    # Helpers

    def at(self, offset: float | None) -> datetime | None:
        """A time of the model as the database's."""
        return None if offset is None else self.base + timedelta(seconds=self.model.now + offset)

    def after(self, offset: float | None) -> float | None:
        """A time that many seconds from now, in the model."""
        return None if offset is None else self.model.now + offset

    def picked(self, numbers: Sequence[int]) -> list[int]:
        """Ids of messages there are, and one of which there is none."""
        known = sorted(self.model.messages)
        return [known[number % len(known)] for number in numbers] if known else [10**12]

    def shown(self) -> dict[int, Row]:
        """Every message as the view shows it."""
        return {
            row["id"]: row for row in self.box.caller.sql(f"SELECT * FROM {{schema}}.{self.name}_messages")
        }

    def take_over_due(self, messages: Sequence[Message]) -> None:
        """Takes the exact due times of retries from the database, once they are about right."""
        rows = self.shown() if messages else {}
        for message in messages:
            exact = (rows[message.id]["due_at"] - self.base).total_seconds()
            assert message.due is not None
            assert message.due <= exact <= message.due + SLACK
            message.due = exact

    # Steps

    @rule(owner=owners, lease=leases, batch=st.integers(1, 8), topics=topic_sets)
    def claim(self, owner: UUID, lease: int, batch: int, topics: list[str] | None) -> None:
        """What comes must be what the model hands out."""
        rows = self.box.claim(owner, lease_seconds=lease, batch_size=batch, topics=topics)
        self.claimed(rows, owner, lease, batch, topics)

    def claimed(self, rows: list[Row], owner: UUID, lease: int, batch: int, topics: list[str] | None) -> None:
        """Follows a claim."""
        model = self.model
        model.reap()
        model.promote()
        if "" in model.paused:
            assert rows == []
            return
        got = ids(rows)
        assert len(got) == len(set(got)) <= batch
        self._follow_queue([i for i in got if model.messages[i].group is None], len(got) < batch, topics)
        self._follow_groups([i for i in got if model.messages[i].group], len(got) < batch, topics)
        for row in rows:
            message = model.messages[row["id"]]
            assert (row["topic"], row["attempt"]) == (message.topic, message.attempt)
            message.state, message.owner, message.turn = "leased", owner, None
            message.until = model.now + lease

    def _follow_queue(self, got: list[int], had_room: bool, topics: list[str] | None) -> None:
        queue = self.model.queue(topics)
        good = [m.id for m in queue if not m.is_overdue(self.model.now)]
        assert got == good[: len(got)], "ungrouped messages come in claim order"
        if had_room:
            assert got == good, "there was room for more"
        last = got[-1] if got else None
        met = queue if had_room else queue[: [m.id for m in queue].index(last) + 1 if last else 0]
        self._bury([m for m in queue if m.is_overdue(self.model.now)], [m.id for m in met])

    def _follow_groups(self, got: list[int], had_room: bool, topics: list[str] | None) -> None:
        model = self.model
        groups = model.groups()
        for group, members in groups.items():
            taken = [i for i in got if model.messages[i].group == group]
            reachable: list[int] = []
            for member in members:
                if not member.is_overdue(model.now):
                    if not (member.is_due(model.now) and model.may_go(member, topics)):
                        break
                    reachable.append(member.id)
            assert taken == reachable[: len(taken)], f"group {group} is out of order"
            if had_room and reachable and not members[0].is_overdue(model.now):
                assert taken, f"there was room for group {group}"
            self._bury([m for m in members if m.is_overdue(model.now)], [])
        assert {model.messages[i].group for i in got} <= set(groups), "a group is held by one owner"

    def _bury(self, overdue: list[Message], surely: list[int]) -> None:
        """Expired messages die when a claim meets them; which it meets is the database's to say."""
        rows = self.shown() if overdue else {}
        for message in overdue:
            if rows[message.id]["status"] == "Expired":
                self.model.finish([message], "expired")
            else:
                assert message.id not in surely, "a claim has passed it over"

    @rule(owner=owners, numbers=picks)
    def ack(self, owner: UUID, numbers: list[int]) -> None:
        """Done."""
        wanted = self.picked(numbers)
        assert self.box.ack(owner, wanted) == self.model.finish(self.model.held(owner, wanted), "done")

    @rule(
        owner=owners,
        numbers=picks,
        error=st.sampled_from((None, "", "e1", "e2")),
        delay=st.sampled_from((None, 50)),
    )
    def abandon(self, owner: UUID, numbers: list[int], error: str | None, delay: float | None) -> None:
        """Another try."""
        wanted = self.picked(numbers)
        held = self.model.held(owner, wanted)
        assert self.box.abandon(owner, wanted, last_error=error, delay_seconds=delay) == self.model.abandon(
            held, error, delay
        )
        self.take_over_due(held)

    @rule(
        owner=owners,
        numbers=picks,
        error=st.sampled_from((None, "", "e1", "e2")),
        delay=st.sampled_from((None, 50)),
        limit=st.sampled_from((None, 0, 1, 2)),
    )
    def retry(
        self, owner: UUID, numbers: list[int], error: str | None, delay: float | None, limit: int | None
    ) -> None:
        """Another try, or the end."""
        wanted = self.picked(numbers)
        held = self.model.held(owner, wanted)
        found = self.box.retry(owner, wanted, last_error=error, delay_seconds=delay, max_attempts=limit)
        assert found == self.model.retry(held, error, delay, limit)
        self.take_over_due([message for message in held if message.state == "waiting"])

    @rule(owner=owners, numbers=picks, delay=st.sampled_from((None, 0, 50)))
    def release(self, owner: UUID, numbers: list[int], delay: float | None) -> None:
        """Handed back."""
        wanted = self.picked(numbers)
        held = self.model.held(owner, wanted)
        assert self.box.release(owner, wanted, delay_seconds=delay) == self.model.release(held, delay)
        if delay:
            self.take_over_due(held)

    @rule(owner=owners, numbers=picks)
    def fail(self, owner: UUID, numbers: list[int]) -> None:
        """Given up."""
        wanted = self.picked(numbers)
        held = self.model.held(owner, wanted)
        assert self.box.fail(owner, wanted, "failed") == self.model.finish(held, "dead", "failed")

    @rule(owner=owners, numbers=picks, lease=leases)
    def extend(self, owner: UUID, numbers: list[int], lease: int) -> None:
        """Prolonged."""
        wanted = self.picked(numbers)
        held = self.model.held(owner, wanted)
        assert ids(self.box.extend(owner, wanted, lease)) == [m.id for m in held]
        for message in held:
            message.until = self.model.now + lease

    @rule(
        owner=owners,
        numbers=picks,
        results=st.lists(st.sampled_from(sorted(OUTCOMES)), min_size=6, max_size=6),
        batch=st.integers(0, 5),
        topics=topic_sets,
    )
    def settle(
        self, owner: UUID, numbers: list[int], results: list[str], batch: int, topics: list[str] | None
    ) -> None:
        """A mixed batch and the next claim."""
        wanted = self.picked(numbers)
        outcomes = [
            {"id": message, "error": "failed", **OUTCOMES[result]}
            for message, result in zip(wanted, results, strict=False)
        ]
        rows = self.box.settle(owner, outcomes, claim_batch=batch, lease_seconds=50, topics=topics)
        first = dict(reversed(list(zip(wanted, results, strict=False))))
        parts = {
            result: self.model.held(owner, [i for i, each in first.items() if each == result])
            for result in OUTCOMES
        }
        self.model.abandon(parts["abandon"], "failed", 50)
        self.model.release(parts["release later"], 50)
        self.model.retry(parts["retry"], "failed", 50, None)
        self.model.retry(parts["retry once"], "failed", 50, 2)
        later = [m for each in ("abandon", "release later", "retry", "retry once") for m in parts[each]]
        self.take_over_due([message for message in later if message.state == "waiting"])
        self.model.finish(parts["ack"], "done")
        self.model.finish(parts["fail"], "dead", "failed")
        self.model.release(parts["release"])
        if batch:
            self.claimed(rows, owner, 50, batch, topics)
        else:
            assert rows == []

    @rule()
    def reap(self) -> None:
        """Expired leases come back."""
        assert self.box.reap() == self.model.reap()

    @rule(steps=st.integers(1, 2))
    def advance(self, steps: int) -> None:
        """Time passes."""
        self.db.advance(STEP * steps)
        self.model.now += STEP * steps

    @rule(topic=st.sampled_from((*TOPICS, None)), on=st.booleans())
    def pause_or_resume(self, topic: str | None, on: bool) -> None:
        """Handing out stops, or starts again."""
        name = topic or ""
        was = name in self.model.paused
        step = "pause" if on else "resume"
        assert self.box.affected(step, topic=topic) == int(on != was)
        (self.model.paused.add if on else self.model.paused.discard)(name)

    @precondition(lambda self: self.model.paused)
    @rule()
    def resume_all(self) -> None:
        """So that most steps find something to do."""
        for name in list(self.model.paused):
            self.box.affected("resume", topic=name or None)
        self.model.paused.clear()

    @rule(numbers=picks, reason=st.sampled_from((None, "", "no more")))
    def cancel(self, numbers: list[int], reason: str | None) -> None:
        """Called off, wherever it is."""
        wanted = self.picked(numbers)
        chosen = [m for m in self.model.where("waiting", "leased") if m.id in wanted]
        found = self.box.cancel(wanted, reason)
        assert found == self.model.finish(chosen, "cancelled", reason or None)

    @rule(numbers=picks, due=st.sampled_from((None, None, -50, 50, 150)))
    def reschedule(self, numbers: list[int], due: int | None) -> None:
        """Another due time, for what waits."""
        wanted = self.picked(numbers)
        chosen = [m for m in self.model.where("waiting") if m.id in wanted]
        found = self.box.affected("reschedule", ids=wanted, due_at=self.at(due))
        assert found == self.model.reschedule(chosen, self.after(due))

    @rule()
    def next_due(self) -> None:
        """Never later than what somebody would sleep through."""
        expected = self.model.next_due()
        found = self.box.one("next_due")["due_at"]
        if expected is not None:
            assert found is not None
            assert (found - self.base).total_seconds() <= expected + SLACK

    @rule(numbers=picks, only_dead=st.booleans())
    def replay(self, numbers: list[int], only_dead: bool) -> None:
        """Dead ones come back, all or none."""
        wanted = self.picked(numbers)
        if only_dead:
            dead = {m.id for m in self.model.where(*OVER)}
            wanted = [message for message in wanted if message in dead]
        chosen = [m for m in self.model.where(*OVER) if m.id in wanted]
        if len(chosen) < len(set(wanted) & set(self.model.messages)):
            try:
                self.box.affected("replay", ids=wanted)
            except InvalidState:
                return
            raise AssertionError("a live message was replayed")
        assert self.box.affected("replay", ids=wanted) == self.model.replay(chosen)

    @rule(numbers=picks)
    def discard(self, numbers: list[int]) -> None:
        """Dead ones go."""
        wanted = self.picked(numbers)
        dead = [m for m in self.model.where(*OVER) if m.id in wanted]
        assert self.box.affected("discard", ids=wanted) == self.model.delete(dead)

    @rule(retention=st.sampled_from((0, 150)))
    def cleanup(self, retention: int) -> None:
        """Done ones go."""
        assert self.box.affected("cleanup", retention_seconds=retention) == self.model.cleanup(retention)

    @rule(retention=st.sampled_from((0, 150)))
    def cleanup_dead(self, retention: int) -> None:
        """Dead ones go by their age."""
        dead = [m for m in self.model.where(*OVER) if m.settled <= self.model.now - retention]
        assert self.box.affected("cleanup_dead", retention_seconds=retention) == self.model.delete(dead)

    @rule()
    def stats(self) -> None:
        """The counts are those of the model."""
        model = self.model
        waiting = model.where("waiting")
        expected = {
            "ready": sum(m.is_due(model.now) for m in waiting),
            "scheduled": sum(not m.is_due(model.now) for m in waiting),
            "in_flight": len(model.where("leased")),
            "done": sum(m.topic is not None for m in model.where("done")),
            "dead": sum(m.topic is not None for m in model.where(*OVER)),
        }
        row = self.box.stats()[None]
        assert {name: row[name] for name in expected} == expected

    @invariant()
    def same(self) -> None:
        """Every message is what and where the model says."""
        rows = self.shown()
        assert sorted(rows) == sorted(self.model.messages)
        for message in self.model.messages.values():
            row = rows[message.id]
            assert row["status"] == self.status(message), message
            expected = (message.topic, message.attempt, message.error, message.owner, message.priority)
            assert expected == tuple(
                row[name] for name in ("topic", "attempt", "last_error", "owner_token", "priority")
            ), message
        if self.db.dialect == "postgres":
            check(self.db, self.name)

    def status(self, message: Message) -> str:
        """The state as the view spells it."""
        raise NotImplementedError  # the outbox and the inbox machine each spell their own

    def teardown(self) -> None:
        """In the end everything can be worked off."""
        for name in list(self.model.paused):
            self.box.affected("resume", topic=name or None)
        left = {m.id for m in self.model.where("waiting", "leased")}
        assert set(drain(self.db, self.name)) <= left
