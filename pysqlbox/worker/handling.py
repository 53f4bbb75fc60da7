"""How an assignment is handled: which handler, with which arguments, and what its answer means.

The steps are a generator that yields the calls to be made, and is sent what came of each: its answer, or what
it raised. So the same steps serve threads, which simply call, and coroutines, which await.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Generator
from typing import Any

from pysqlbox import watching
from pysqlbox.logs import about, handling, is_watched
from pysqlbox.typed import Undecodable
from pysqlbox.wording import counted
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.context import Context
from pysqlbox.worker.handlers import Handler, Handlers
from pysqlbox.worker.results import Ack, DeadLetter, NonRetryable, Release, Result, Retry
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import JOIN_WAIT, ServedBox
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.tally import Tally
from pysqlbox.worker.transactions import LeaseLost
from pysqlbox.worker.unknown_topics import UnknownTopics

__all__ = ["Answer", "Call", "Handling", "describe"]

#: What is to be called now; its answer may be awaitable.
Call = Callable[[], Any]
#: What came of it: its answer, and what it raised.
Answer = tuple[Any, BaseException | None]


class Handling:
    """Runs assignments through the handlers of one worker."""

    def __init__(
        self,
        scheduler: Scheduler,
        handlers: Handlers,
        settings: Settings,
        unknown_topics: UnknownTopics,
    ) -> None:
        self._scheduler = scheduler
        self._handlers = handlers
        self._settings = settings
        self._unknown_topics = unknown_topics
        #: What the first handler raised that failed.
        self.first_error: BaseException | None = None

    def steps(
        self, assignment: Assignment, tally: Tally, *, on_loop: bool = False
    ) -> Generator[Call, Answer, None]:
        """The calls for one assignment, in their order; between them results are noted.

        ``on_loop``: only coroutine handlers are called here, otherwise only the others; what comes behind, if
        it is of the other kind, goes where it can be called.
        """
        box = assignment.box
        while (message := assignment.head) is not None:
            if self._scheduler.stopping:
                self.release(assignment, tally)
                return
            handler = self._handlers.by_topic.get(message.topic)
            if handler is None:
                self._refuse(assignment, tally)
                return
            if handler.is_async != on_loop and self._scheduler.coroutines is not None:
                self._scheduler.add([assignment])
                return
            if handler.concurrency is not None and not self._handlers.enter(handler, assignment):
                return  # whoever leaves the handler next goes on with it
            try:
                going = yield from self._one(box, assignment, handler, tally)
            finally:
                if handler.concurrency is not None:
                    self._leave(handler, assignment, tally)
            if not going:
                self.release(assignment, tally)
                return

    def _one(
        self, box: ServedBox, assignment: Assignment, handler: Handler, tally: Tally
    ) -> Generator[Call, Answer, bool]:
        """Handle what comes next; whether what waits behind it may be begun."""
        messages = assignment.begin(handler)
        if messages is None:
            return False
        ours = [message for message in messages if not assignment.is_lost(message)]
        if len(ours) < len(messages):
            for message in messages:
                if message not in ours:
                    box.log.warning(
                        "%s: message %d is not begun, its lease ran out", box.name, message.id,
                        extra=about(message),
                    )  # fmt: skip
            if not ours:
                assignment.finish()
                return False
        if not is_watched():
            return (yield from self._handle(box, assignment, handler, ours, tally))
        with handling(box.log.fields, ours):
            return (yield from self._handle(box, assignment, handler, ours, tally))

    def _handle(
        self, box: ServedBox, assignment: Assignment, handler: Handler, ours: list[Any], tally: Tally
    ) -> Generator[Call, Answer, bool]:
        """Call the handler of messages that are this worker's, and note what it answers."""
        if box.log.isEnabledFor(logging.INFO):
            for message in ours:
                box.log.info("%s: %s message %d", box.name, message.topic, message.id, extra=about(message))
        results: dict[int, Result] = {}
        good, arguments = self._decode(box, handler, ours, results)
        if good:
            answer, raised = yield self._call(assignment, handler, good, arguments)
            try:
                if raised is not None:
                    raise raised
                answers = answer if handler.transactional else handler.results_of(good, answer)
                results.update((message.id, result) for message, result in zip(good, answers, strict=True))
            except BaseException as error:  # noqa: BLE001  # whatever a handler raises means: again, or give up
                for number, message in enumerate(good):
                    results[message.id] = self.verdict(box, message, error, quiet=number > 0)
        if not assignment.finish():
            return False  # it took too long, and the lease keeper has decided already
        took = time.monotonic() - assignment.began_at
        box.note_cost(took, len(ours))
        tally.handled(box.key, handler.topic, took)
        if handler.transactional and all(isinstance(result, Ack) for result in results.values()):
            return self._committed(box, ours, tally)
        for message in ours:
            self.note(assignment, message, results[message.id], tally)
        return all(isinstance(result, Ack | DeadLetter) for result in results.values())

    def _call(
        self, assignment: Assignment, handler: Handler, messages: list[Any], arguments: list[Any]
    ) -> Call:
        """The handler itself, within every middleware, and watched by whoever watches."""
        call = self._within(assignment, handler, messages, arguments)
        watcher = watching.watcher
        if watcher is None:
            return call
        return watcher.handling(assignment.box, handler, messages, call)

    def _within(
        self, assignment: Assignment, handler: Handler, messages: list[Any], arguments: list[Any]
    ) -> Call:
        """The handler within every middleware."""
        argument: Any = arguments if handler.batch else arguments[0]
        middleware = self._handlers.middleware if handler.topic != JOIN_WAIT else ()
        if not middleware and not handler.takes_context and not handler.transactional:
            return lambda: handler.function(argument)
        context = Context(self._scheduler, assignment, messages)
        call: Call = functools.partial(
            handler.function, argument, *((context,) if handler.takes_context else ())
        )
        subject = messages if handler.batch else messages[0]
        for function in reversed(middleware):
            call = functools.partial(function, subject, context, call)
        if handler.transactional:
            transactions = assignment.box.store.transactions
            return functools.partial(transactions.run, assignment, handler, messages, context, call)
        return call

    def _decode(
        self, box: ServedBox, handler: Handler, messages: list[Any], results: dict[int, Result]
    ) -> tuple[list[Any], list[Any]]:
        """The messages to hand in, and what is handed in for them; the others have their result."""
        if handler.decode is None:
            return messages, messages
        good, arguments = [], []
        for message in messages:
            try:
                arguments.append(handler.decode(message))
                good.append(message)
            except Exception as error:  # noqa: BLE001  # a model's own code may run, and raise anything
                results[message.id] = self.verdict(box, message, error)
        return good, arguments

    # Results

    def note(self, assignment: Assignment, message: Any, result: Result, tally: Tally) -> None:
        """Turn a message's result into what settle takes."""
        if assignment.lost and message.id in assignment.lost and not isinstance(result, Ack):
            return  # somebody else has it by now, perhaps another thread of this worker
        box = assignment.box
        outcomes = box.outcomes
        match result := self.final(box, message, result):
            case Ack():
                tally.count("acked", box.key, message.topic)
                outcomes.acked.append(message.id)
            case DeadLetter():
                tally.count("dead", box.key, message.topic)
                box.log.warning(
                    "%s: %s message %d is given up", box.name, message.topic, message.id, extra=about(message)
                )
                outcomes.add(message.id, "fail", result.error or "given up by its handler")
            case Release():
                tally.count("released", box.key, message.topic)
                delay = self._settings.delay(box.log, message.attempt, result.delay)
                outcomes.add(message.id, "release", delay=delay)
            case Retry():
                tally.count("retried", box.key, message.topic)
                delay = self._settings.retry_delay(box.log, message.attempt + 1, result.delay)
                outcomes.add(message.id, "retry", result.error, delay, box.limit_of(message.topic))

    def final(self, box: ServedBox, message: Any, result: Result) -> Result:
        """A result as it is meant: after the last attempt there is no other."""
        if isinstance(result, Retry) and box.gives_up(message.topic, message.attempt + 1):
            return DeadLetter(result.error or f"given up after {counted(message.attempt + 1, 'attempt')}")
        return result

    def _committed(self, box: ServedBox, messages: list[Any], tally: Tally) -> bool:
        """The messages are done already, with what their handler wrote."""
        tally.count("acked", box.key, messages[0].topic, len(messages))
        self._scheduler.settled()
        if any(message.group_id is not None for message in messages):
            self._scheduler.wake(box)  # for the next of the group
        return True

    def release(self, assignment: Assignment, tally: Tally) -> None:
        """Give back what was not begun."""
        for message in assignment.take_waiting():
            tally.count("released", assignment.box.key, message.topic)
            assignment.box.outcomes.add(message.id, "release")

    def overran(self, assignment: Assignment, messages: list[Any], seconds: float, tally: Tally) -> None:
        """What it means that a handler did not end in time."""
        box = assignment.box
        reason = f"the handler did not end within {counted(seconds, 'second')}"
        if assignment.handler is not None:
            tally.handled(box.key, assignment.handler.topic, seconds)
        for message in messages:
            box.log.error(
                "%s: %s message %d: %s", box.name, message.topic, message.id, reason, extra=about(message)
            )
            self.note(assignment, message, Retry(error=reason), tally)
        self.release(assignment, tally)

    def _refuse(self, assignment: Assignment, tally: Tally) -> None:
        """What becomes of messages that nobody here can handle."""
        box = assignment.box
        first, *behind = assignment.take_waiting() or [None]
        if first is None:
            return
        result = self._unknown_topics.result(box, first)
        self.note(assignment, first, result, tally)
        for message in behind:  # of its group
            self.note(assignment, message, Release(), tally)

    def _leave(self, handler: Handler, assignment: Assignment, tally: Tally) -> None:
        """Give back a place in a handler that has only so many."""
        parked, ask = self._handlers.leave(handler, hung=assignment.overrun)
        if parked is not None:
            if self._scheduler.stopping:
                self.release(parked, tally)
            else:
                self._scheduler.add([parked])
        elif ask:
            self._scheduler.wake()

    def verdict(self, box: ServedBox, message: Any, error: BaseException, *, quiet: bool = False) -> Result:
        """What an exception means: a dead letter if it can never succeed, otherwise another try."""
        reason = describe(error)
        if self.first_error is None:
            self.first_error = error
        if isinstance(error, LeaseLost):
            if not quiet:
                box.log.warning(
                    "%s: %s message %d: %s", box.name, message.topic, message.id, error, extra=about(message)
                )
            return Retry(error=reason)  # which counts for nothing, since the message is not ours
        if not quiet:
            box.log.error(
                "%s: %s message %d, attempt %d: %s",
                box.name, message.topic, message.id, message.attempt + 1, type(error).__name__,
                exc_info=None if isinstance(error, Undecodable) else error, extra=about(message),
            )  # fmt: skip
        if isinstance(error, NonRetryable | Undecodable):
            return DeadLetter(reason)
        return Retry(error=reason)


def describe(error: BaseException) -> str:
    """An exception as one line for last_error."""
    try:
        text = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001  # an exception that cannot even be shown
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
