"""The clients' own account of what the database has confirmed to them, kept outside of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(slots=True)
class Account:
    """What was sent, what was settled, what came that should not have. A message is known by its key."""

    confirmed: set[str] = field(default_factory=set)
    """Whose enqueue was committed, by the database's own word."""
    unsure: set[str] = field(default_factory=set)
    """Whose commit was asked for and never answered."""
    refused: set[str] = field(default_factory=set)
    """Whose transaction failed, or was rolled back, before a commit was asked for."""
    settled: set[str] = field(default_factory=set)
    """Whose ack was committed, by the database's own word."""
    seen: set[str] = field(default_factory=set)
    """Who came out of a claim, whatever became of them."""
    doubled: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    """Transactions of which one part was there and another was not."""
    unanswered: int = 0
    _held: dict[str, UUID] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sent(self, keys: Iterable[str]) -> None:
        """The commit of an enqueue was answered."""
        with self._lock:
            self.confirmed.update(keys)

    def failed(self, keys: Iterable[str], *, asked_to_commit: bool) -> None:
        """An enqueue ended with an error."""
        with self._lock:
            (self.unsure if asked_to_commit else self.refused).update(keys)
            self.unanswered += asked_to_commit

    def handed(self, owner: UUID, keys: Iterable[str]) -> None:
        """A claim answered these, under leases that outlast the test."""
        with self._lock:
            for key in keys:
                self.seen.add(key)
                if key in self.settled or self._held.setdefault(key, owner) != owner:
                    self.doubled.append(key)

    def returned(self, keys: Iterable[str]) -> None:
        """These are about to be settled or have lost their lease; who asks next may get them."""
        with self._lock:
            for key in keys:
                self._held.pop(key, None)

    def done(self, keys: Iterable[str]) -> None:
        """The commit of an ack was answered."""
        with self._lock:
            self.settled.update(keys)

    def no_answer(self) -> None:
        """The commit of a settlement was asked for and never answered."""
        with self._lock:
            self.unanswered += 1

    def tear(self, what: str) -> None:
        """Part of a transaction is missing."""
        with self._lock:
            self.torn.append(what)

    def forget_holders(self) -> None:
        """Whoever held anything has been told to forget it, or the leases have run out."""
        with self._lock:
            self._held.clear()

    def backlog(self) -> int:
        """About how much waits."""
        return len(self.confirmed) - len(self.settled)
