"""One deployment under watch: its boxes' counts, read for all viewers at once and kept for the sparklines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from pysqlbox.boxes import AnyBox
from pysqlbox.dashboard.samples import Samples
from pysqlbox.dashboard.shared import Shared
from pysqlbox.deployment import Deployment
from pysqlbox.errors import PysqlboxError
from pysqlbox.inbox import Inbox
from pysqlbox.messages import Finding, TopicStats, WorkerSeen
from pysqlbox.outbox import Outbox

__all__ = ["BoxState", "Snapshot", "Watch"]

_log = logging.getLogger("pysqlbox.dashboard")

#: How often the counts are read, and how long after the last look that ends.
_EVERY, _LONGEST = 2.0, 30.0
_WORST_FIRST = ("error", "warning", "unknown", "note", "ok")


@dataclass(frozen=True, slots=True)
class BoxState:
    """The counts of one box, by topic and in total, and its rates."""

    name: str
    kind: str
    total: TopicStats
    topics: Sequence[TopicStats]
    done_rate: float | None
    arrival_rate: float | None
    done_line: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The boxes as they were when the database last answered."""

    at: float
    boxes: Sequence[BoxState] = ()
    error: PysqlboxError | None = None
    """Why the last look failed; the boxes are then those of the look before."""

    @property
    def seconds_old(self) -> float:
        """How long ago the database last answered."""
        return time.monotonic() - self.at


class Watch:
    """Reads a deployment for all its viewers. A thread keeps the sparklines while somebody looks."""

    def __init__(self, db: Deployment, boxes: Sequence[str] | None = None) -> None:
        self.db = db
        self.shared = Shared()
        self._names = list(boxes) if boxes is not None else None
        self._samples: dict[str, Samples] = {}
        self._seen: dict[str, dict[UUID, float]] = {}
        self._last: Snapshot | None = None
        self._asked_at = 0.0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def boxes(self) -> list[Outbox | Inbox]:
        """The boxes of the deployment; those made meanwhile show within a minute."""
        names = self._names or self.shared.get("boxes", 60, self._ask_boxes)
        return [self.db.box(name) for name in names]

    def snapshot(self) -> Snapshot:
        """The boxes' counts, not older than two seconds, or than the database's answer took times twenty."""
        self._asked_at = time.monotonic()
        found = self.shared.get("snapshot", _EVERY - 0.1, self._look)
        self._start()
        return found

    def findings(self) -> list[Finding]:
        """What doctor says, the worst first, not older than half a minute."""
        return self.shared.get("doctor", 30, self._ask_doctor)

    def seen(self, box: AnyBox) -> list[tuple[WorkerSeen, float]]:
        """Who works on a box, each with for how many seconds it has been seen from here."""
        now = time.monotonic()
        found = box.workers(limit=100)
        before = self._seen.get(box.name, {})
        self._seen[box.name] = {each.owner_token: before.get(each.owner_token, now) for each in found}
        return [(each, now - self._seen[box.name][each.owner_token]) for each in found]

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout=10)

    def _ask_boxes(self) -> list[str]:
        return [each.name for each in self.db.schema_boxes()]

    def _ask_doctor(self) -> list[Finding]:
        return sorted(self.db.doctor(), key=lambda each: _WORST_FIRST.index(each.level))

    def _look(self) -> Snapshot:
        """Read all boxes; if the database does not answer, the last counts with the reason."""
        try:
            found = [(box, box.stats()) for box in self.boxes()]
        except PysqlboxError as error:
            before = self._last
            self._last = Snapshot(0.0 if before is None else before.at, before.boxes if before else (), error)
            return self._last
        now = time.monotonic()
        states = []
        for box, rows in found:
            total = rows[-1]
            samples = self._samples.setdefault(box.name, Samples())
            samples.add(now, total)
            states.append(
                BoxState(
                    box.name, box.kind, total, rows[:-1],
                    samples.done_rate(), samples.arrival_rate(), samples.done_line(),
                )
            )  # fmt: skip
        self._last = Snapshot(now, states)
        return self._last

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="pysqlbox-dashboard", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY):
            with self._lock:
                if time.monotonic() - self._asked_at > _LONGEST:
                    self._thread = None  # the next look starts another one
                    return
            found = self.shared.get("snapshot", _EVERY - 0.1, self._look)
            if found.error is not None:
                _log.debug("the counts were not read: %s [%s]", found.error, self.db.store)
