"""The joins of the default outbox behind one set of methods, and steps that can be told apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from tests.contract.support import OWNER, Box, Row
from tests.support.database import Session

WAIT = "join.wait"
"""The topic of the message that waits for a join."""
SAFETY_NET = 3600
"""Seconds after which a waiting message comes by itself, though nothing woke it."""
JOIN_COLUMNS = [
    "join_id",
    "tenant_id",
    "expected_steps",
    "completed_steps",
    "failed_steps",
    "status",
    "metadata",
    "created_at",
    "last_updated_at",
]
RESOLVED_COLUMNS = ["status", "completed_steps", "failed_steps", "expected_steps", "enqueued_message_id"]
MEMBER_COLUMNS = ["join_id", "tenant_id", "message_id", "id", "topic", "status", "attached_at"]


class Step(NamedTuple):
    """A message of the outbox: the id that its worker settles, and the one that a join knows."""

    id: int
    message_id: UUID


@dataclass(frozen=True, slots=True)
class Joins:
    """The routines of joins; arguments that do not matter to a test have values of their own."""

    box: Box

    def on(self, session: Session) -> Joins:
        """The same joins, seen from an open transaction."""
        return Joins(self.box.on(session))

    def start(self, expected_steps: object = 1, tenant_id: object = "tenant", **more: object) -> UUID:
        """A new join."""
        arguments = {"tenant_id": tenant_id, "expected_steps": expected_steps} | more
        row = self.box.caller.one("join_start", **arguments)
        assert list(row) == ["join_id"]
        assert isinstance(row["join_id"], UUID)
        return row["join_id"]

    def attach(self, join: object, message: object) -> bool:
        """Makes a message a step; false if it was one already."""
        return self._flag("attached", "join_attach", join_id=join, message_id=_message_id(message))

    def attach_many(self, join: object, messages: Sequence[Any] | None) -> int:
        """Makes messages steps; how many were none yet."""
        wanted = messages if messages is None else [_message_id(each) for each in messages]
        row = self.box.caller.one("join_attach_many", join_id=join, message_ids=wanted)
        assert list(row) == ["attached"]
        return int(row["attached"])

    def completed(self, join: object, message: object) -> bool:
        """Reports a step as completed; false if it had counted already."""
        return self._flag("counted", "join_report_completed", join_id=join, message_id=_message_id(message))

    def failed(self, join: object, message: object) -> bool:
        """Reports a step as failed; false if it had counted already."""
        return self._flag("counted", "join_report_failed", join_id=join, message_id=_message_id(message))

    def wait(self, join: object, **more: object) -> Step:
        """Enqueues the message that waits for the join."""
        row = self.box.caller.one("join_wait", join_id=join, **more)
        assert list(row) == ["id", "message_id"]
        return Step(int(row["id"]), row["message_id"])

    def resolve(self, join: object) -> Row:
        """What the handler of that message asks."""
        row = self.box.caller.one("join_resolve", join_id=join)
        assert list(row) == RESOLVED_COLUMNS
        return row

    def get(self, join: object) -> Row:
        """The join."""
        row = self.box.caller.one("join_get", join_id=join)
        assert list(row) == JOIN_COLUMNS
        return row

    def listed(self, **filters: object) -> list[UUID]:
        """The ids of the joins that a list answers, in its order."""
        return [row["join_id"] for row in self.box.caller.call("join_list", **filters)]

    def cancel(self, join: object) -> bool:
        """Gives a join up."""
        return self._flag("cancelled", "join_cancel", join_id=join)

    def counts(self, join: object) -> tuple[int, int]:
        """How many steps have completed, and how many failed."""
        row = self.get(join)
        return row["completed_steps"], row["failed_steps"]

    def shown(self, join: UUID) -> Row:
        """The join as the view shows it."""
        text = "SELECT * FROM {schema}.outbox_joins WHERE join_id = %s"
        (row,) = self.box.caller.sql(text, self.bound(join))
        return row

    def members(self, join: UUID) -> list[Row]:
        """The steps of a join as the view shows them, by id."""
        text = "SELECT * FROM {schema}.outbox_join_members WHERE join_id = %s ORDER BY id"
        return self.box.caller.sql(text, self.bound(join))

    def bound(self, value: UUID) -> object:
        """A uuid as a parameter of plain SQL."""
        return value if self.box.db.dialect == "postgres" else str(value)

    def put(self, topic: object = "step", **more: object) -> Step:
        """Enqueues one message."""
        row = self.box.enqueue(topic, **more)
        return Step(int(row["id"]), row["message_id"])

    def steps(self, count: int, *joins: UUID, topic: str = "step", **more: object) -> list[Step]:
        """Enqueues messages and attaches each to the joins."""
        rows = self.box.enqueue_many(*[self.box.record(topic, **more) for _ in range(count)])
        made = [Step(int(row["id"]), row["message_id"]) for row in rows]
        for step in made:
            for join in joins:
                assert self.attach(join, step)
        return made

    def held(self, count: int, *joins: UUID, owner: UUID = OWNER, lease: int = 30, **more: Any) -> list[int]:
        """Steps that a worker has claimed; their ids."""
        made = ids_of(self.steps(count, *joins, **more))
        assert sorted(self.box.take(owner, lease=lease, batch=count, topics=["step"])) == made
        return made

    def woken(self, owner: UUID = OWNER) -> list[int]:
        """Claims the waiting messages that are due."""
        return self.box.take(owner, topics=[WAIT])

    def finish(self, join: UUID, *, failing: int = 0) -> Row:
        """Has all the steps of a join that has none yet done, so many of them badly, and resolves it."""
        made = self.held(self.get(join)["expected_steps"], join)
        self.box.fail(OWNER, made[:failing])
        self.box.ack(OWNER, made[failing:])
        return self.resolve(join)

    def _flag(self, name: str, routine: str, **arguments: object) -> bool:
        row = self.box.caller.one(routine, **arguments)
        assert list(row) == [name]
        value = row[name]
        assert isinstance(value, bool)
        return value


def ids_of(steps: list[Step]) -> list[int]:
    """The ids of steps."""
    return [step.id for step in steps]


def joins_of(rows: list[Row]) -> list[UUID]:
    """The joins that claimed waiting messages are about."""
    return [UUID(json.loads(row["payload"])["join_id"]) for row in rows]


def follow_ups(box: Box, *topics: str) -> list[Row]:
    """Claims the messages that resolved joins have enqueued."""
    return box.claim(topics=list(topics), batch_size=100, lease_seconds=3600)


def _message_id(message: Any) -> object:
    return message.message_id if isinstance(message, Step) else message
