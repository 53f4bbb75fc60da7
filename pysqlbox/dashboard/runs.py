"""Bulk replays and discards: they run here, in pieces, as fast as they may, and can be cancelled."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

from pysqlbox.boxes import AnyBox
from pysqlbox.errors import InvalidState, PysqlboxError

__all__ = ["ACTIONS", "Cause", "Preview", "Run", "Runs", "preview"]

_log = logging.getLogger("pysqlbox.dashboard")

ACTIONS = ("replay", "discard")
#: Dead letters that are looked at in one call, messages that one transaction changes, and runs at a time.
_PAGE, _PIECE, _AT_ONCE = 1000, 200, 4
#: Dead letters that are looked at to count those of a cause; of more it says "at least".
_PREVIEWED = 4000
_KEPT = 50


@dataclass(frozen=True, slots=True)
class Cause:
    """Which dead letters: those of a topic that died of one cause, as ``dead_causes`` names it."""

    topic: str | None
    cause: str

    def __str__(self) -> str:
        return self.cause if self.topic is None else f"{self.cause} (topic {self.topic})"

    def pages(self, box: AnyBox) -> Iterator[tuple[int, list[int]]]:
        """How many dead letters each page looked at, and which of them it is about.

        In the order of ids and once: what dies again meanwhile is not run after.
        """
        after = 0
        while True:
            found = box.dead_letter_causes(limit=_PAGE, after_id=after, topic=self.topic)
            yield (
                len(found),
                [each.id for each in found if (each.topic, each.cause) == (self.topic, self.cause)],
            )
            if len(found) < _PAGE:
                return
            after = found[-1].id


@dataclass(frozen=True, slots=True)
class Preview:
    """How many messages a run would change; at least so many if it ``is_cut``."""

    messages: int
    is_cut: bool


def preview(box: AnyBox, cause: Cause) -> Preview:
    """Count what a cause has among the first ``_PREVIEWED`` dead letters of its topic."""
    found = looked_at = 0
    for looked, ids in cause.pages(box):
        found += len(ids)
        looked_at += looked
        if looked == _PAGE and looked_at >= _PREVIEWED:
            return Preview(found, is_cut=True)
    return Preview(found, is_cut=False)


@dataclass(slots=True)
class Run:
    """One run, and how far it is."""

    no: int
    box: AnyBox
    action: str
    cause: Cause
    who: str
    wanted: Preview
    rate: int | None
    """Messages a second; None is as fast as it goes."""
    begun_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    affected: int = 0
    status: str = "running"
    """running, finished, cancelled or broken."""
    error: str | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """End it after the piece that it is at."""
        self._stop.set()

    def work(self, act: Callable[[Run, list[int]], int]) -> None:
        """All pieces, one after another; what one cannot do is tried message by message."""
        begun = time.monotonic()
        try:
            for ids in self._pieces():
                if self._stop.is_set():
                    self.status = "cancelled"
                    return
                self.affected += self._change(act, ids)
                if self.rate is not None:
                    self._stop.wait(max(0.0, begun + self.affected / self.rate - time.monotonic()))
            self.status = "finished"
        except PysqlboxError as error:
            self.status, self.error = "broken", str(error)
            _log.warning("%s of %s messages ended: %s", self.action, self.affected, error)
        except BaseException:
            self.status, self.error = "broken", "something went wrong here; the log has the details"
            raise
        finally:
            self.ended_at = datetime.now(UTC)

    def _pieces(self) -> Iterator[list[int]]:
        size = _PIECE if self.rate is None else max(1, min(_PIECE, self.rate))
        for _, ids in self.cause.pages(self.box):
            if self._stop.is_set():
                yield []
            for first in range(0, len(ids), size):
                yield ids[first : first + size]

    def _change(self, act: Callable[[Run, list[int]], int], ids: list[int]) -> int:
        if not ids:
            return 0
        try:
            return act(self, ids)
        except InvalidState:  # somebody has replayed one of them meanwhile
            if len(ids) == 1:
                return 0
        middle = len(ids) // 2
        return self._change(act, ids[:middle]) + self._change(act, ids[middle:])


#: Changes some messages of a run, and notes who did, in one transaction; answers how many.
Act = Callable[[Run, list[int]], int]


class Runs:
    """The runs of this process, the latest first. A restart of the service ends them where they are."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._runs: dict[int, Run] = {}
        self._threads: dict[int, threading.Thread] = {}

    def start(
        self, box: AnyBox, action: str, cause: Cause, who: str, wanted: Preview, rate: int | None
    ) -> Run:
        """Begin a run; InvalidState if there are as many as may be."""
        with self._lock:
            if sum(run.status == "running" for run in self._runs.values()) >= _AT_ONCE:
                raise InvalidState(f"{_AT_ONCE} runs are under way: wait for one, or cancel it")
            run = Run(next(self._numbers), box, action, cause, who, wanted, rate)
            self._runs[run.no] = run
            for no in [no for no, each in self._runs.items() if each.status != "running"][:-_KEPT]:
                del self._runs[no]
            self._threads = {no: thread for no, thread in self._threads.items() if thread.is_alive()}
            thread = threading.Thread(
                target=run.work, args=(self._act,), name=f"pysqlbox-dashboard-run-{run.no}", daemon=True
            )
            self._threads[run.no] = thread
            thread.start()
        return run

    def get(self, no: int) -> Run | None:
        """A run by its number."""
        return self._runs.get(no)

    def list(self) -> list[Run]:
        """All that are kept, the latest first."""
        with self._lock:
            return sorted(self._runs.values(), key=lambda run: -run.no)

    def close(self) -> None:
        """Cancel all, and wait for the pieces that they are at."""
        with self._lock:
            threads = list(self._threads.values())
            for run in self._runs.values():
                run.cancel()
        for thread in threads:
            thread.join(timeout=30)
