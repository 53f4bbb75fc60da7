"""The outbox's and the inbox's own steps."""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.concurrency.machine import OVER, BoxMachine, common, picks
from tests.concurrency.model import Message
from tests.contract.support import json_text

MESSAGE_IDS = tuple(UUID(int=number) for number in range(1, 5))


class OutboxMachine(BoxMachine):
    """Enqueues with dedup keys and message ids of the caller's own."""

    name = "outbox"

    def status(self, message: Message) -> str:
        """The state as the view spells it."""
        return {
            "waiting": "Ready",
            "leased": "InProgress",
            "done": "Done",
            "dead": "Failed",
            "expired": "Expired",
            "cancelled": "Cancelled",
        }[message.state]

    @rule(
        **common,
        dedup=st.sampled_from((None, None, "k", "l")),
        message_id=st.sampled_from((None, None, None, *MESSAGE_IDS)),
    )
    def enqueue(
        self,
        topic: str,
        due: int | None,
        expires: int | None,
        priority: int,
        group: str | None,
        collapse: str | None,
        dedup: str | None,
        message_id: UUID | None,
    ) -> None:
        """One message, with every option."""
        row = self.box.enqueue(
            topic,
            due_at=self.at(due),
            expires_at=self.at(expires),
            priority=priority,
            group_id=group,
            collapse_key=collapse,
            dedup_key=dedup,
            message_id=message_id,
        )
        model = self.model
        if dedup is not None and dedup in model.dedup:
            first, seen = model.dedup[dedup]
            if seen > model.now - 250:
                assert (row["outcome"], row["id"]) == ("duplicate", first)
                return
        if not hasattr(self, "own"):
            self.own: dict[UUID, int] = {}
        existing = self.own.get(message_id) if message_id else None
        if existing in model.messages:
            assert (row["outcome"], row["id"]) == ("duplicate", existing)
        else:
            self.own[row["message_id"]] = row["id"]
            replaced = model.admit(
                Message(
                    row["id"],
                    topic,
                    "waiting",
                    priority,
                    group,
                    collapse,
                    self.after(due),
                    self.after(expires),
                )
            )
            assert row["outcome"] == ("collapsed" if replaced else "created")
        if dedup is not None:
            model.dedup[dedup] = (row["id"], model.now)

    @rule(count=st.integers(1, 6), topic=common["topic"], due=common["due"], group=common["group"])
    def enqueue_many(self, count: int, topic: str, due: int | None, group: str | None) -> None:
        """Several alike."""
        records = [self.box.record(topic, due_at=self.at(due), group_id=group) for _ in range(count)]
        for row in self.box.call("enqueue_many", messages=json_text(records)):
            self.model.admit(Message(row["id"], topic, "waiting", 0, group, None, self.after(due)))

    @precondition(lambda self: len(self.model.messages) < 250)
    @rule(topic=common["topic"], due=st.sampled_from((None, None, 50)))
    def enqueue_payloads(self, topic: str, due: int | None) -> None:
        """So many that they stand in runs, where the dialect has them."""
        rows = self.box.call("enqueue_payloads", topic=topic, payloads=["p"] * 250, due_at=self.at(due))
        for row in rows:
            self.model.admit(Message(row["id"], topic, "waiting", due=self.after(due)))


class InboxMachine(BoxMachine):
    """Enqueues by the sender's key, sightings and marks."""

    name = "inbox"
    keys = st.integers(0, 7)
    hashes = st.sampled_from((None, b"1", b"2"))

    def __init__(self) -> None:
        """Remembers which key has which id."""
        super().__init__()
        self.known: dict[int, int] = {}

    def status(self, message: Message) -> str:
        """The state as the view spells it."""
        return {
            "done": "Done",
            "dead": "Dead",
            "expired": "Expired",
            "cancelled": "Cancelled",
            "seen": "Seen",
        }.get(message.state, "Processing")

    def found(self, key: int) -> Message | None:
        """The message with this key, unless it was deleted."""
        return self.model.messages.get(self.known.get(key, 0))

    @rule(**common, key=keys, hash=hashes)
    def enqueue(
        self,
        topic: str,
        due: int | None,
        expires: int | None,
        priority: int,
        group: str | None,
        collapse: str | None,
        key: int,
        hash: bytes | None,
    ) -> None:
        """A new message, or one that was seen or sent before."""
        row = self.box.enqueue(
            topic,
            source="s",
            message_id=str(key),
            due_at=self.at(due),
            expires_at=self.at(expires),
            priority=priority,
            group_id=group,
            collapse_key=collapse,
            hash=hash,
        )
        model = self.model
        old = self.found(key)
        if old is None:
            self.known[key] = row["id"]
            new = Message(
                row["id"], topic, "waiting", priority, group, collapse, self.after(due), self.after(expires)
            )
            new.hash = hash
            assert row["outcome"] == ("collapsed" if model.admit(new) else "created")
            assert row["hash_mismatch"] is False
            return
        assert row["id"] == old.id
        assert row["hash_mismatch"] is (None not in (old.hash, hash) and old.hash != hash)
        if old.state == "done":
            assert row["outcome"] == "done"
            return
        assert row["outcome"] == "updated"
        self._renew(old, topic, self.after(due), self.after(expires), priority)
        old.hash = hash
        if old.state in ("seen", "processing"):
            old.group, old.collapse = group, collapse
            model.place(old)
            model.replace(old)

    def _renew(
        self, old: Message, topic: str, due: float | None, expires: float | None, priority: int
    ) -> None:
        now = self.model.now
        unpromoted = old.group is None and old.turn is None
        moves = (
            not old.is_due(now)
            or (due is not None and due > now)
            or unpromoted
            or (old.topic, old.priority, old.expires) != (topic, priority, expires)
        )
        old.topic, old.due, old.expires, old.priority = topic, due, expires, priority
        if old.state == "waiting" and moves:
            self.model.place(old)

    @rule(key=keys, hash=hashes)
    def already_processed(self, key: int, hash: bytes | None) -> None:
        """A receiver's first question."""
        row = self.box.one("already_processed", source="s", message_id=str(key), hash=hash)
        old = self.found(key)
        assert row["already_processed"] is (old is not None and old.state == "done")
        if old is None:
            found = self.box.one("find", source="s", message_id=str(key))
            self.known[key] = found["id"]
            self.model.messages[found["id"]] = Message(found["id"], None, "seen", hash=hash)
        else:
            assert row["hash_mismatch"] is (None not in (old.hash, hash) and old.hash != hash)
            if old.state != "done" and old.hash is None:
                old.hash = hash

    @rule(key=keys)
    def mark_processing(self, key: int) -> None:
        """Seen becomes Processing."""
        old = self.found(key)
        live = old is not None and old.state not in ("done", *OVER)
        assert self.box.affected("mark_processing", source="s", message_id=str(key)) == int(live)
        if old is not None and old.state == "seen":
            old.state = "processing"

    @rule(key=keys, state=st.sampled_from(("done", "dead")))
    def mark(self, key: int, state: str) -> None:
        """By its key, wherever it is."""
        old = self.found(key)
        live = old is not None and old.state not in ("done", *OVER)
        step = "mark_processed" if state == "done" else "mark_dead"
        assert self.box.affected(step, source="s", message_id=str(key)) == int(live)
        if old is not None and live:
            self.model.finish([old], state)

    @rule(numbers=picks)
    def find(self, numbers: list[int]) -> None:
        """By key and by id the same message."""
        for key in numbers:
            rows = self.box.call("find", source="s", message_id=str(key % 8))
            old = self.found(key % 8)
            assert [row["id"] for row in rows] == ([old.id] if old else [])
            assert [self.box.get(old.id)] == rows if old else True
