"""Coroutine handlers, all on one event loop: the worker's own, in a thread, or the application's."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from pysqlbox.errors import InvalidState
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.tally import Tally

if TYPE_CHECKING:
    from pysqlbox.worker.handling import Answer, Handling
    from pysqlbox.worker.scheduler import Scheduler

__all__ = ["Coroutines"]

#: At the end, coroutines that were cancelled get so long to clean up.
CANCEL_SECONDS = 1.0


class Coroutines:
    """Runs up to ``slots`` coroutine handlers at once; what is more waits its turn."""

    def __init__(self, slots: int, loop: asyncio.AbstractEventLoop | None) -> None:
        """``loop``: the application's, which goes on when the worker ends."""
        self.slots = slots
        self.tally = Tally()
        #: The thread of our own loop, once that is needed.
        self.thread: threading.Thread | None = None
        self._loop = loop
        self._is_closed = False
        self._lock = threading.Lock()
        self._waiting: deque[Assignment] = deque()
        self._tasks: dict[Assignment, asyncio.Task[None]] = {}
        self._begin_is_due = self._end_is_due = False
        self._scheduler: Scheduler | None = None
        self._handling: Handling | None = None

    def serve(self, scheduler: Scheduler, handling: Handling) -> None:
        """Work for these from now on."""
        self._scheduler, self._handling = scheduler, handling

    # From any thread

    @property
    def busy(self) -> int:
        """How many assignments are here, running or waiting."""
        return len(self._tasks) + len(self._waiting)

    @property
    def free_slots(self) -> int:
        """How many more coroutines could begin now."""
        return max(self.slots - self.busy, 0)

    @property
    def has_lost_loop(self) -> bool:
        """Whether somebody has closed the loop before the worker ended; nothing runs there any more."""
        return self._loop is not None and self._loop.is_closed() and not self._is_closed

    def held(self) -> list[Assignment]:
        """Every assignment that is here."""
        with self._lock:
            return [*self._tasks, *self._waiting]

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Handle these as soon as there are slots."""
        with self._lock:
            self._waiting.extend(assignments)
            if self._begin_is_due:
                return
            self._begin_is_due = True
        self._tell_loop(self._begin)

    def is_on_loop(self) -> bool:
        """Whether the caller runs on the loop, which must not be kept waiting."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # no loop runs in this thread
            return False

    def cancel(self, assignment: Assignment) -> None:
        """Raise CancelledError in the coroutine that handles it."""
        task = self._tasks.get(assignment)
        if task is not None:
            self._tell_loop(task.cancel)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run one coroutine on the loop and wait for it, in any thread but the loop's."""
        try:
            loop = self._get_loop()
            if loop.is_closed():
                raise InvalidState(
                    "the event loop of the worker's coroutines was closed: start the worker again"
                )
        except InvalidState:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def close(self) -> None:
        """Cancel what still runs, and end the loop if it is our own."""
        with self._lock:
            self._is_closed = True
            tasks = list(self._tasks.values())
            self._waiting.clear()
        if self.thread is None:
            for task in tasks:
                self._tell_loop(task.cancel)
        else:
            self._tell_loop(lambda: asyncio.ensure_future(self._finish()))
            self.thread.join(CANCEL_SECONDS + 0.5)

    def _tell_loop(self, function: Callable[[], object]) -> None:
        """Call a function on the loop; if somebody has closed that, the lease keeper ends the worker."""
        loop = self._get_loop()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(function)

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop; our own one is started when it is first needed."""
        with self._lock:
            if self._loop is None:
                if self._is_closed:
                    raise InvalidState("the worker was stopped; start it again, or make another one")
                self._loop = asyncio.new_event_loop()
                self.thread = threading.Thread(
                    target=self._run_loop, args=(self._loop,), name="pysqlbox-loop", daemon=True
                )
                self.thread.start()
            return self._loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    # On the loop

    async def _finish(self) -> None:
        me = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not me]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
        asyncio.get_running_loop().stop()

    def _begin(self) -> None:
        with self._lock:
            self._begin_is_due = False
            loop = asyncio.get_running_loop()
            while self._waiting and len(self._tasks) < self.slots:
                assignment = self._waiting.popleft()
                task = loop.create_task(self._handle(assignment))
                self._tasks[assignment] = task

    async def _handle(self, assignment: Assignment) -> None:
        if self._handling is None or self._scheduler is None:
            raise RuntimeError("the coroutines serve nobody")
        steps, loop = self._handling.steps(assignment, self.tally, on_loop=True), asyncio.get_running_loop()
        try:
            call = next(steps)
            while True:
                try:
                    answer: Answer = await call(), None
                except BaseException as error:  # noqa: BLE001  # whatever a handler raises is its answer
                    if loop.is_closed():  # so nobody awaits this any more
                        return
                    answer = None, error
                call = steps.send(answer)
        except StopIteration:
            pass
        except BaseException:  # what is unforeseen must cost the others nothing
            held = [message.id for message in assignment.held()]
            assignment.box.log.exception("%s: messages %s are left to leases", assignment.box.name, held)
        finally:
            with self._lock:
                del self._tasks[assignment]
            if not self._end_is_due and not loop.is_closed():  # one word to the threads for all of this round
                self._end_is_due = True
                loop.call_soon(self._tell, self._scheduler)

    def _tell(self, scheduler: Scheduler) -> None:
        self._end_is_due = False
        self._begin()
        scheduler.coroutines_ended()
