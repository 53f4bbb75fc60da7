"""Handlers called as a worker would call them, without a database, a thread or a lease."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from pysqlbox.errors import InvalidState, NotFound
from pysqlbox.messages import InboxMessage, OutboxMessage
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.context import Context
from pysqlbox.worker.handlers import Handler
from pysqlbox.worker.handling import Answer, Handling
from pysqlbox.worker.results import Ack, Result
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import JOIN_WAIT, ServedBox
from pysqlbox.worker.served_store import ServedStore
from pysqlbox.worker.tally import Tally
from pysqlbox.worker.transactions import Transactions
from pysqlbox.worker.unknown_topics import UnknownTopics

if TYPE_CHECKING:
    from pysqlbox.worker import Worker

__all__ = ["handle", "handle_async"]

#: The box's own setting, unless it was changed; the worker's max_attempts goes before it.
MAX_ATTEMPTS = 10

Message = OutboxMessage | InboxMessage


@overload
def handle(
    worker: Worker, message: Message, *, connection: Any = None, raise_errors: bool = False
) -> Result: ...


@overload
def handle(
    worker: Worker, message: Sequence[Message], *, connection: Any = None, raise_errors: bool = False
) -> list[Result]: ...


def handle(
    worker: Worker,
    message: Message | Sequence[Message],
    *,
    connection: Any = None,
    raise_errors: bool = False,
) -> Result | list[Result]:
    """What the worker would make of a message: its handler's result, within all middleware.

    An exception is what it is to a worker: Retry, or DeadLetter after the last attempt; with ``raise_errors``
    it is raised. A list of messages goes to a batch handler as one batch, and there is a result for each.
    ``connection`` is ``context.connection`` of a transactional handler: yours to commit or to roll back.
    """
    inline = Inline(worker, message, connection)
    if not inline.handler.is_async:
        inline.run()
    elif _has_loop():
        raise InvalidState("a loop runs here already: use await testing.handle_async(…)")
    else:
        asyncio.run(inline.run_async())
    return inline.results(raise_errors)


@overload
async def handle_async(
    worker: Worker, message: Message, *, connection: Any = None, raise_errors: bool = False
) -> Result: ...


@overload
async def handle_async(
    worker: Worker, message: Sequence[Message], *, connection: Any = None, raise_errors: bool = False
) -> list[Result]: ...


async def handle_async(
    worker: Worker,
    message: Message | Sequence[Message],
    *,
    connection: Any = None,
    raise_errors: bool = False,
) -> Result | list[Result]:
    """The same on the loop that runs; ordinary handlers are called on it as well."""
    inline = Inline(worker, message, connection)
    await inline.run_async()
    return inline.results(raise_errors)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Lent(Transactions):
    """In place of a transaction of the worker's own: a connection of the test's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(
        self,
        assignment: Assignment,
        handler: Handler,
        messages: list[Any],
        context: Context,
        call: Callable[[], Any],
    ) -> list[Result]:
        """The handler's results; nothing is committed, rolled back or acknowledged."""
        del assignment
        context.joined = self._connection
        try:
            return handler.results_of(messages, call())
        finally:
            context.joined = None


class _Noting(Handling):
    """Keeps the results."""

    noted: dict[int, Result]

    def note(self, assignment: Assignment, message: Any, result: Result, tally: Tally) -> None:
        """Keep a result, as the database would get it."""
        del tally
        self.noted[message.id] = self.final(assignment.box, message, result)

    def _committed(self, box: ServedBox, messages: list[Any], tally: Tally) -> bool:
        del box, tally
        self.noted.update((message.id, Ack()) for message in messages)
        return True


class Inline:
    """One call of a handler."""

    def __init__(self, worker: Worker, message: Message | Sequence[Message], connection: Any) -> None:
        self._single = isinstance(message, OutboxMessage | InboxMessage)
        self._messages: list[Message] = (
            [message] if isinstance(message, OutboxMessage | InboxMessage) else list(message)
        )
        settings, handlers = worker._settings, worker._handlers  # its friend
        handlers.check(None, JOIN_WAIT)
        topics = {each.topic for each in self._messages}
        for topic in topics:
            if topic not in handlers:
                known = ", ".join(sorted(handlers.topics())) or "none"
                raise NotFound(
                    f"topic {topic!r}: the worker has no handler for it, register one; its topics: {known}"
                )
        if len(topics) != 1:
            raise InvalidState("messages: must be of one topic, and at least one")
        self.handler = handlers.by_topic[topics.pop()]
        if not self._single and not self.handler.batch:
            raise InvalidState(
                f"messages: the handler of {self.handler.topic!r} takes one at a time: give it one"
            )
        db = worker.deployment
        box = ServedBox(
            db.inbox if isinstance(self._messages[0], InboxMessage) else db.outbox,
            handlers, settings, topics=None, threads=1,
            max_attempts=MAX_ATTEMPTS if settings.max_attempts is None else settings.max_attempts,
            store=ServedStore(db, _Lent(connection), 0),
        )  # fmt: skip
        self._handling = _Noting(
            Scheduler([box], threads=1),
            handlers,
            settings,
            UnknownTopics(settings.unknown_topics),
        )
        self._handling.noted = {}
        self._assignment = Assignment(box, self._messages, time.monotonic(), together=self.handler.batch)

    def run(self) -> None:
        """Call an ordinary handler."""
        steps = self._handling.steps(self._assignment, Tally())
        try:
            call = next(steps)
            while True:
                try:
                    value = call()
                    answer: Answer = (asyncio.run(value) if asyncio.iscoroutine(value) else value), None
                except Exception as error:  # noqa: BLE001  # whatever a handler raises is its answer
                    answer = None, error
                call = steps.send(answer)
        except StopIteration:
            return

    async def run_async(self) -> None:
        """Call it and await what it answers."""
        steps = self._handling.steps(self._assignment, Tally(), on_loop=self.handler.is_async)
        try:
            call = next(steps)
            while True:
                try:
                    value = call()
                    answer: Answer = (await value if inspect.isawaitable(value) else value), None
                except Exception as error:  # noqa: BLE001  # whatever a handler raises is its answer
                    answer = None, error
                call = steps.send(answer)
        except StopIteration:
            return

    def results(self, raise_errors: bool) -> Result | list[Result]:
        """What came of it."""
        error = self._handling.first_error
        if raise_errors and error is not None:
            raise error
        found = [self._handling.noted[message.id] for message in self._messages]
        return found[0] if self._single else found
