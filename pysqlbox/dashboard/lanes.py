"""Threads that wait for databases: a bounded number, of which no store gets more than its share."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pysqlbox.errors import DatabaseUnavailable

__all__ = ["Lanes", "TooMany"]

Answer = TypeVar("Answer")


class TooMany(Exception):
    """So many calls wait for a thread that no more are taken."""


@dataclass(slots=True)
class _Lane:
    """The calls of one store."""

    busy: int = 0
    waiting: deque[tuple[Future[Any], Callable[[], Any]]] = field(default_factory=deque)
    away_until: float | None = None
    """Its database did not answer last; before this time it is not asked again."""


class Lanes:
    """Runs blocking functions in threads, which start when they are needed.

    Those without a store may take all threads. A store takes half of them at most; once its database is away
    one call at a time tries whether it is back, after a pause, and the others are told at once. Of such tries
    there are a quarter of the threads at most, so that a server that is gone with many stores leaves the
    others their threads too.
    """

    def __init__(
        self, threads: int, waiting: int, *, name: str, rest: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._count = threads
        self._most = threads + waiting
        self._name = name
        self._rest = rest
        self._clock = clock
        self._lock = threading.Lock()
        self._threads = self._executor()
        self._lanes: dict[str | None, _Lane] = {}
        self._held = 0
        self._tries = 0

    def submit(self, function: Callable[[], Answer], store: str | None = None) -> Future[Answer]:
        """Call a function as soon as there is a thread for it.

        DatabaseUnavailable if its store is known to be away; TooMany if too many wait already.
        """
        future: Future[Answer] = Future()
        with self._lock:
            if self._held >= self._most:
                raise TooMany
            lane = self._lanes.setdefault(store, _Lane())
            is_try = lane.away_until is not None
            if lane.away_until is not None:
                if lane.busy or self._clock() < lane.away_until or self._tries >= max(1, self._count // 4):
                    raise DatabaseUnavailable("the store's database does not answer")
                self._tries += 1
            self._held += 1
            if lane.busy >= self._share(store):
                lane.waiting.append((future, function))
                return future
            lane.busy += 1
        self._begin(store, lane, future, function, is_try=is_try)
        return future

    def close(self, *, wait: bool) -> None:
        """Start nothing that waits, and perhaps wait for what runs. A later call starts threads anew."""
        with self._lock:
            ended, self._threads = self._threads, self._executor()
            waiting = [future for lane in self._lanes.values() for future, _ in lane.waiting]
            for lane in self._lanes.values():
                self._held -= len(lane.waiting)
                lane.waiting.clear()
        for future in waiting:
            future.cancel()
        ended.shutdown(wait=wait, cancel_futures=True)

    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._count, thread_name_prefix=self._name)

    def _share(self, store: str | None) -> int:
        return self._count if store is None else max(1, self._count // 2)

    def _begin(
        self, store: str | None, lane: _Lane, future: Future[Any], function: Callable[[], Any],
        *, is_try: bool = False,
    ) -> None:  # fmt: skip
        """Give a call, which its lane counts as busy already, to the threads."""

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    answer = function()
                except BaseException as error:  # noqa: BLE001  # whoever waits for the answer is told
                    self._over(store, lane, is_try=is_try, error=error)
                    future.set_exception(error)
                else:
                    self._over(store, lane, is_try=is_try)
                    future.set_result(answer)
            else:
                self._over(store, lane, is_try=is_try, ran=False)

        def dropped(started: Future[None]) -> None:
            if started.cancelled():
                self._over(store, lane, is_try=is_try, ran=False)
                future.cancel()

        self._threads.submit(work).add_done_callback(dropped)

    def _over(
        self, store: str | None, lane: _Lane, *, is_try: bool, ran: bool = True,
        error: BaseException | None = None,
    ) -> None:  # fmt: skip
        """A call has ended: what it says of the store, and who is next."""
        following: tuple[Future[Any], Callable[[], Any]] | None = None
        with self._lock:
            self._held -= 1
            self._tries -= is_try
            if store is not None and ran:
                is_away = isinstance(error, DatabaseUnavailable)
                lane.away_until = self._clock() + self._rest if is_away else None
            if lane.waiting:
                following = lane.waiting.popleft()
            else:
                lane.busy -= 1
                if not lane.busy and lane.away_until is None:
                    self._lanes.pop(store, None)
            is_away = lane.away_until is not None
            # Those who came before it was known are told now; they would only find out the same.
            told = [each for each, _ in lane.waiting] if is_away else []
            if is_away:
                lane.waiting.clear()
                self._held -= len(told)
                if following is not None:
                    told.append(following[0])
                    self._held -= 1
                    following = None
                    lane.busy -= 1
        for each in told:
            if each.set_running_or_notify_cancel():
                each.set_exception(DatabaseUnavailable("the store's database does not answer"))
        if following is not None:
            self._begin(store, lane, *following)
