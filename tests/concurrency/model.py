"""A box in plain Python: what each routine must do, with none of the tables that make it fast.

Times are seconds since the run began, on a clock that only the run moves: in steps of 100, while due times,
leases and retentions end half-way between steps. So the few real seconds that a run takes change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

STEP = 100
BACKOFF = 60
DEDUP_WINDOW = 250
MAX_ATTEMPTS = 3
EXHAUSTED = f"the lease expired and the attempts reached max_attempts ({MAX_ATTEMPTS})"


@dataclass(slots=True)
class Message:
    """One message; `turn` is its place among the ready ones, none while it is scheduled or in a group."""

    id: int
    topic: str | None
    state: str
    priority: int = 0
    group: str | None = None
    collapse: str | None = None
    due: float | None = None
    expires: float | None = None
    attempt: int = 0
    error: str | None = None
    owner: UUID | None = None
    until: float = 0
    turn: int | None = None
    settled: float = 0
    hash: bytes | None = None

    def is_due(self, now: float) -> bool:
        """Whether its time has come."""
        return self.due is None or self.due <= now

    def is_overdue(self, now: float) -> bool:
        """Whether it must not be handed out any more."""
        return self.expires is not None and self.expires <= now


@dataclass(slots=True)
class Model:
    """Every message, what was deduplicated, collapsed and paused, and the time."""

    now: float = 0
    messages: dict[int, Message] = field(default_factory=dict)
    dedup: dict[str, tuple[int, float]] = field(default_factory=dict)
    collapse: dict[str, set[int]] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    _turns: int = 0

    def where(self, *states: str) -> list[Message]:
        """The messages in these states, by id."""
        return [m for _, m in sorted(self.messages.items()) if m.state in states]

    def place(self, message: Message) -> None:
        """Makes a message wait: at the tail, for its time, or in its group."""
        message.state, message.owner, message.turn = "waiting", None, None
        if message.group is None and message.is_due(self.now):
            self._turns += 1
            message.turn = self._turns

    def admit(self, message: Message) -> bool:
        """Enters a new message; whether it replaced an older one."""
        self.messages[message.id] = message
        self.place(message)
        return self.replace(message)

    def replace(self, message: Message) -> bool:
        """Removes older waiting messages with the same collapse key; whether there were any."""
        if message.collapse is None:
            return False
        known = self.collapse.setdefault(message.collapse, set())
        older = {each for each in known if each < message.id}
        known -= older
        known.add(message.id)
        removed = [each for each in older if each in self.messages and self.messages[each].state == "waiting"]
        for each in removed:
            del self.messages[each]
        return bool(removed)

    def held(self, owner: UUID, ids: Iterable[int]) -> list[Message]:
        """What of these the owner holds, by id."""
        wanted = set(ids)
        return [m for m in self.where("leased") if m.id in wanted and m.owner == owner]

    def finish(self, messages: Sequence[Message], state: str, error: str | None = None) -> int:
        """Settles messages for good."""
        for message in messages:
            message.state, message.owner, message.turn = state, None, None
            message.settled = self.now
            message.error = message.error if error is None else error
        return len(messages)

    def abandon(self, messages: Sequence[Message], error: str | None, delay: float | None) -> int:
        """Another try later; the exact due time is taken over from the database."""
        for message in messages:
            message.attempt += 1
            message.error = error or message.error
            message.due = self.now + (BACKOFF if delay is None else delay)
            self.place(message)
        return len(messages)

    def retry(
        self, messages: Sequence[Message], error: str | None, delay: float | None, limit: int | None
    ) -> tuple[int, int]:
        """Another try later, or the end of those that had enough; how many, and how many of them died."""
        most = MAX_ATTEMPTS if limit is None else limit
        dying = [m for m in messages if 0 < most <= m.attempt + 1]
        for message in dying:
            message.attempt += 1
        self.abandon([m for m in messages if m not in dying], error, delay)
        return len(messages), self.finish(dying, "dead", error or None)

    def release(self, messages: Sequence[Message], delay: float | None = None) -> int:
        """Hands back, now or later; the exact due time is taken over from the database."""
        for message in messages:
            if delay:
                message.due = self.now + delay
            self.place(message)
        return len(messages)

    def reschedule(self, messages: Sequence[Message], due: float | None) -> int:
        """Another due time; what is at the tail's reach already and stays so keeps its turn."""
        for message in messages:
            stays = message.turn is not None and (due is None or due <= self.now)
            if due is not None or not stays:
                message.due = self.now if due is None else due
            if not stays:
                self.place(message)
        return len(messages)

    def next_due(self) -> float | None:
        """When something that nobody can claim now becomes claimable, or a lease ends."""
        waits = [m.due for m in self.where("waiting") if m.group is None and m.turn is None]
        heads = [members[0] for members in self.groups().values()]
        waits += [head.due for head in heads if not head.is_due(self.now)]
        times = [due for due in waits if due is not None] + [m.until for m in self.where("leased")]
        return min(times, default=None)

    def reap(self) -> int:
        """Takes expired leases back."""
        expired = [m for m in self.where("leased") if m.until < self.now]
        for message in expired:
            message.attempt += 1
            if message.attempt >= MAX_ATTEMPTS:
                self.finish([message], "dead", EXHAUSTED)
            else:
                self.place(message)
        return len(expired)

    def promote(self) -> None:
        """Moves what has become due to the tail, earliest first."""
        due = [m for m in self.where("waiting") if m.group is None and m.turn is None and m.is_due(self.now)]
        for message in sorted(due, key=lambda m: (m.due or 0, m.id)):
            self.place(message)

    def may_go(self, message: Message, topics: Sequence[str] | None) -> bool:
        """Whether a claim of these topics may hand this one out, as far as its topic goes."""
        return message.topic not in self.paused and (topics is None or message.topic in topics)

    def queue(self, topics: Sequence[str] | None) -> list[Message]:
        """The ungrouped messages that a claim of these topics meets, in claim order."""
        ready = [m for m in self.where("waiting") if m.turn is not None and self.may_go(m, topics)]
        return sorted(ready, key=lambda m: (-m.priority, m.turn or 0))

    def groups(self) -> dict[str, list[Message]]:
        """The waiting members of every group that nobody holds."""
        held = {m.group for m in self.where("leased")}
        found: dict[str, list[Message]] = {}
        for message in self.where("waiting"):
            if message.group is not None and message.group not in held:
                found.setdefault(message.group, []).append(message)
        return found

    def replay(self, messages: Sequence[Message]) -> int:
        """Brings dead ones back."""
        for message in messages:
            message.attempt, message.due = 0, None
            if message.is_overdue(self.now):
                message.expires = None
            if message.topic is None:
                message.state = "processing"
            else:
                self.place(message)
        return len(messages)

    def delete(self, messages: Sequence[Message]) -> int:
        """Forgets messages."""
        for message in messages:
            del self.messages[message.id]
        return len(messages)

    def cleanup(self, retention: float) -> int:
        """Deletes done ones past their retention, and keys past their window."""
        gone = [m for m in self.where("done") if m.settled <= self.now - retention]
        for message in gone:
            if message.collapse is not None:
                self.collapse.get(message.collapse, set()).discard(message.id)
        self.dedup = {
            key: (message, seen)
            for key, (message, seen) in self.dedup.items()
            if seen > self.now - DEDUP_WINDOW
        }
        return self.delete(gone)
