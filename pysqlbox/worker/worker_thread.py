"""One thread of a worker: takes what the scheduler has for it, and runs handlers."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from pysqlbox import watching
from pysqlbox.logs import about, is_watched
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.coroutines import Coroutines
from pysqlbox.worker.exchange import Exchange
from pysqlbox.worker.forking import end_child
from pysqlbox.worker.handlers import result_of
from pysqlbox.worker.handling import Answer, Handling
from pysqlbox.worker.results import Result
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import ServedBox
from pysqlbox.worker.tally import Tally

__all__ = ["WorkerThread"]

#: What is done is settled at least this often while handlers go on.
SETTLE_SECONDS = 0.25


class WorkerThread:
    """The state of one thread; ``has_turn`` to ``superfluous`` belong to the scheduler and its lock."""

    def __init__(
        self,
        scheduler: Scheduler,
        handling: Handling,
        exchange: Exchange,
        coroutines: Coroutines,
        rank: int,
    ) -> None:
        """``rank``: of the threads that are free, the one with the lowest is woken."""
        self.rank = rank
        self.tally = Tally()
        #: What it works on; the lease keeper looks at it.
        self.assignment: Assignment | None = None
        self.has_turn = False
        #: Whom it talks to the database about, since when, and whether that may take long.
        self.asked: ServedBox | None = None
        self.turn_began = 0.0
        self.is_doubtful = False
        self.at_work = False
        self.hanging = False
        self.superfluous = False
        self._scheduler = scheduler
        self._handling = handling
        self._exchange = exchange
        self._coroutines = coroutines

    def run(self) -> None:
        """The thread's life: until the scheduler has nothing more for it."""
        while (work := self._scheduler.next(self)) is not None:
            try:
                if isinstance(work, Assignment):
                    self._work(work)
                else:
                    self._exchange.run(self, work)
                    self._work(None)
            except BaseException:  # noqa: BLE001  # what is unforeseen must cost neither the thread nor others
                self._give_up(work)
            if self.hanging:
                self._scheduler.came_back(self)

    def _work(self, assignment: Assignment | None) -> None:
        """Handle one thing after the other, until there is nothing, or the database must be talked to."""
        scheduler, ready = self._scheduler, self._scheduler.ready
        began = time.monotonic()
        while not self.hanging:
            if assignment is None:
                if scheduler.stopping or len(ready) <= scheduler.low_water:
                    return
                try:
                    assignment = ready.popleft()
                except IndexError:  # another thread was quicker
                    return
            box = assignment.box
            if ready and not box.is_quick(len(ready)):
                scheduler.call_help()
            self.assignment = assignment
            if assignment.loose:
                self._handle_quickly(assignment)
            else:
                self._handle(assignment)
            self.assignment = None
            assignment = None
            if scheduler.stopping or box.outcomes.wait_since(began) > SETTLE_SECONDS:
                self._exchange.settle(box)

    def _handle(self, assignment: Assignment) -> None:
        steps = self._handling.steps(assignment, self.tally)
        try:
            call = next(steps)
            while True:
                try:
                    answer: Answer = self._awaited(call()), None
                except BaseException as error:  # noqa: BLE001  # whatever a handler raises is its answer
                    answer = None, error
                if self._scheduler.forked:
                    end_child(assignment.box.log)
                call = steps.send(answer)
        except StopIteration:
            return

    def _handle_quickly(self, assignment: Assignment) -> None:
        """Handle loose messages with nothing but the call between two of them, as long as that goes well."""
        box, tally, scheduler = assignment.box, self.tally, self._scheduler
        acked, by_topic = box.outcomes.acked, box.handlers.by_topic
        lease_seconds, next_quick = box.settings.lease_seconds, assignment.next_quick
        verbose = box.log.isEnabledFor(logging.INFO)
        figures = tally.figures
        began, count = time.monotonic(), 0
        following: Any = None
        #: Otherwise there is more to a message than to call its handler.
        if not (box.handlers.middleware or is_watched() or watching.watcher):
            following = next_quick(by_topic, lease_seconds)
        while (message := following) is not None:
            handler = assignment.handler or by_topic[message.topic]
            if verbose:
                box.log.info("%s: %s message %d", box.name, message.topic, message.id, extra=about(message))
            result: Result | None = None
            try:
                answer = handler.function(message if handler.decode is None else handler.decode(message))
                if answer is not None:
                    result = result_of(self._awaited(answer))
            except BaseException as error:  # noqa: BLE001  # whatever a handler raises means: again, or give up
                result = self._handling.verdict(box, message, error)
            took = 0.0 if figures is None else time.monotonic() - assignment.began_at
            if scheduler.stopping or watching.watcher:
                if scheduler.forked:
                    end_child(box.log)
                following = None
                assignment.finish()
            else:
                following = next_quick(by_topic, lease_seconds)
            if following is None and assignment.overrun:
                return  # it took too long, and the lease keeper has decided already
            count += 1
            if figures is not None:
                of_topic = figures[box.key, message.topic]
                of_topic.handling.add(took)
                of_topic.acked += result is None  # the others are counted where they are noted
            if result is None:
                acked.append(message.id)
                tally.acked += 1
            else:
                self._handling.note(assignment, message, result, tally)
        if count:
            box.note_cost(time.monotonic() - began, count)
        if scheduler.stopping:
            self._handling.release(assignment, tally)
        else:
            scheduler.add(assignment.split())

    def _give_up(self, work: Assignment | ServedBox) -> None:
        """After a fault of the package itself: what this thread had is left to its lease."""
        assignment, self.assignment = self.assignment, None
        held = assignment.held() if assignment is not None else []
        box = work.box if isinstance(work, Assignment) else work
        box.log.exception(
            "%s: unexpected; messages %s are left to leases", box.name, [message.id for message in held]
        )
        if assignment is not None:
            assignment.take_waiting()
            assignment.take_handled()
        self._scheduler.pause(1.0)

    def _awaited(self, answer: Any) -> Any:
        """What a handler answers, and if it answers with a coroutine, what that answers."""
        if not asyncio.iscoroutine(answer):
            return answer
        return self._coroutines.run(answer)
