"""What became of the messages of one box, until the database knows it."""

from __future__ import annotations

import json
import threading
import time

__all__ = ["Outcomes", "storable"]


class Outcomes:
    """Results in the shape that settle takes: all the acknowledged are one record.

    Every thread adds to the same ones, and whoever talks to the database takes them along. What cannot be
    delivered is given back, so a result stays here until the database has it.
    """

    __slots__ = ("_lock", "acked", "others", "taken_at")

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.others: list[dict[str, object]] = []
        #: When they were last on their way to the database.
        self.taken_at = time.monotonic()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self.acked or self.others)

    def __len__(self) -> int:
        return len(self.acked) + len(self.others)

    def add(
        self,
        identity: int,
        result: str,
        error: str | None = None,
        delay: float | None = None,
        max_attempts: int | None = None,
    ) -> None:
        """Note one that was not simply acknowledged."""
        record: dict[str, object] = {"id": identity, "result": result}
        if error is not None:
            record["error"] = storable(error)
        if delay is not None:
            record["delay_seconds"] = delay
        if max_attempts is not None:
            record["max_attempts"] = max_attempts
        self.others.append(record)

    def wait_since(self, began: float) -> float:
        """For how many seconds they have waited, reckoned from ``began`` at the earliest."""
        if not self.acked and not self.others:
            return 0.0
        return time.monotonic() - max(self.taken_at, began)

    def take(self) -> Outcomes:
        """Hand over everything noted so far, and go on empty; a thread may be adding or taking meanwhile."""
        taken = Outcomes()
        with self._lock:
            count, other_count = len(self.acked), len(self.others)
            taken.acked, taken.others = self.acked[:count], self.others[:other_count]
            del self.acked[:count], self.others[:other_count]
            self.taken_at = time.monotonic()
        return taken

    def give_back(self, taken: Outcomes) -> None:
        """Put back what could not be settled."""
        with self._lock:
            self.acked[:0] = taken.acked
            self.others[:0] = taken.others

    def parts(self) -> list[Outcomes]:
        """The acknowledged, and each of the others by itself."""
        parts = []
        for acked, others in [(self.acked, []), *(([], [record]) for record in self.others)]:
            part = Outcomes()
            part.acked, part.others = acked, others
            parts.append(part)
        return [part for part in parts if part]

    def halves(self) -> list[Outcomes]:
        """The acknowledged in two parts."""
        middle = len(self.acked) // 2
        first, second = Outcomes(), Outcomes()
        first.acked, second.acked = self.acked[:middle], self.acked[middle:]
        return [first, second]

    def __repr__(self) -> str:
        others = ", ".join(f"{record['result']} of message {record['id']}" for record in self.others)
        return f"Outcomes({len(self.acked)} acknowledged{', ' if others else ''}{others})"

    def as_json(self) -> str:
        """The argument of settle."""
        records: list[str] = []
        if self.acked:
            records.append('{"result":"ack","ids":[' + ",".join(map(str, self.acked)) + "]}")
        records += [json.dumps(record, ensure_ascii=False) for record in self.others]
        return "[" + ",".join(records) + "]"


def storable(error: object) -> str:
    """A handler's reason as text that every database takes: no NUL, no half of a surrogate pair."""
    return str(error).replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
