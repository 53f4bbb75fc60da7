"""Workers and upkeep that start and stop together, in a web application or a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Self, TypeVar, cast

from pysqlbox.arguments import Delay
from pysqlbox.errors import InvalidArgument, InvalidState
from pysqlbox.signatures import check_takes
from pysqlbox.upkeep import Upkeep
from pysqlbox.wording import counted
from pysqlbox.worker.registering import HookFunction
from pysqlbox.worker.signals import signals
from pysqlbox.worker.worker import Worker

__all__ = ["Manager"]

_log = logging.getLogger("pysqlbox.manager")
_Part = TypeVar("_Part", Worker, Upkeep)


class Manager:
    """Starts several workers and upkeep, and stops them; who only sends messages needs none of it."""

    def __init__(
        self,
        workers: Worker | Iterable[Worker] = (),
        upkeep: Upkeep | Iterable[Upkeep] | None = None,
        *,
        stop_timeout: Delay = 30.0,
    ) -> None:
        """``stop_timeout``: how long running handlers may take to end."""
        self.workers = _several("workers", workers, Worker)
        self.upkeep = _several("upkeep", () if upkeep is None else upkeep, Upkeep)
        self._timeout = _seconds(stop_timeout)
        self._on_start: list[Callable[[], Any]] = []
        self._on_stop: list[Callable[[], Any]] = []
        self._lock = threading.Lock()
        self._running = False

    def on_start(self, function: HookFunction) -> HookFunction:
        """Call a function without arguments, or a coroutine function, before anything is started."""
        check_takes("on_start", function)
        self._on_start.append(function)
        return function

    def on_stop(self, function: HookFunction) -> HookFunction:
        """The same after everything has stopped."""
        check_takes("on_stop", function)
        self._on_stop.append(function)
        return function

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._running

    def start(self) -> None:
        """Call the hooks, start upkeep and workers, and return; if one cannot start, none is."""
        self._begin()
        try:
            for function in self._on_start:
                _call(function)
            parts: list[Upkeep | Worker] = [*self.upkeep, *self.workers]
            for part in parts:
                if self._running:
                    part.start()
        except BaseException:
            self.stop()
            raise
        if not self._running:  # a stop() meanwhile has missed what was just being started
            self._stop_all(self._timeout)

    def stop(self, timeout: Delay | None = None) -> bool:
        """Stop all of them at once, then call the hooks; whether every handler ended in time."""
        if not self._end():
            return True
        clean = self._stop_all(self._timeout if timeout is None else _seconds(timeout))
        for function in self._on_stop:
            try:
                _call(function)
            except Exception as error:  # noqa: BLE001  # the hook is the caller's code
                _log.error("on_stop %r: %s", function, error, exc_info=error)
        return clean

    def run(self) -> None:
        """Start, and stop at SIGTERM or SIGINT."""
        signalled = threading.Event()

        def on_signal(number: int, frame: object) -> None:
            del frame
            signalled.set()
            _log.info("%s: stopping", signal.Signals(number).name)

        with signals(on_signal):
            self.start()
            try:
                while self._running and not signalled.wait(0.2):  # in slices, between which signals are seen
                    pass
            finally:
                self.stop()

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """What Starlette and FastAPI take as ``lifespan=``; coroutine handlers run on their loop."""
        del app
        async with self:
            yield

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self._begin()
        try:
            for function in self._on_start:
                await _await(function)
            for upkeep in self.upkeep if self._running else ():
                upkeep.start()
            for worker in self.workers:
                if self._running:
                    await worker._start_async(self._timeout)  # its friend
        except BaseException:
            await self._stop_async()
            raise
        if not self._running:
            await asyncio.to_thread(self._stop_all, self._timeout)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stop_async()

    def __repr__(self) -> str:
        return f"Manager({counted(len(self.workers), 'worker')}, {len(self.upkeep)} upkeep)"

    async def _stop_async(self) -> None:
        if not self._end():
            return
        await asyncio.shield(asyncio.to_thread(self._stop_all, self._timeout))
        for function in self._on_stop:
            try:
                await _await(function)
            except Exception as error:  # noqa: BLE001  # the hook is the caller's code
                _log.error("on_stop %r: %s", function, error, exc_info=error)

    def _begin(self) -> None:
        with self._lock:
            if self._running:
                raise InvalidState("the manager runs already: stop() it first")
            self._running = True

    def _end(self) -> bool:
        with self._lock:
            was_running, self._running = self._running, False
            return was_running

    def _stop_all(self, timeout: float) -> bool:
        parts: list[Worker | Upkeep] = [*self.workers, *self.upkeep]
        if not parts:
            return True
        with ThreadPoolExecutor(len(parts), "pysqlbox-stop") as pool:
            return all(list(pool.map(lambda part: part.stop(timeout), parts)))


def _several(name: str, given: _Part | Iterable[_Part], kind: type[_Part]) -> list[_Part]:
    found = [given] if isinstance(given, kind) else list(cast("Iterable[_Part]", given))
    for each in found:
        if not isinstance(each, kind):
            raise InvalidArgument(f"{name}: must be {kind.__name__}, not {type(each).__name__}")
    return found


def _call(function: Callable[[], Any]) -> None:
    answer = function()
    if asyncio.iscoroutine(answer):
        asyncio.run(answer)


async def _await(function: Callable[[], Any]) -> None:
    answer = function()
    if asyncio.iscoroutine(answer):
        await answer


def _seconds(value: Delay) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
