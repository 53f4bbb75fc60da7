"""Handlers by topic: how each is called, and how many of them may run at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from pysqlbox.errors import InvalidArgument
from pysqlbox.signatures import check_takes, is_coroutine_function, signature_of
from pysqlbox.typed import batch_decoder_for, decoder_for
from pysqlbox.wording import counted
from pysqlbox.worker.results import Ack, DeadLetter, Delay, Release, Result, Retry

if TYPE_CHECKING:
    from pysqlbox.worker.assignment import Assignment

__all__ = [
    "Handler",
    "HandlerOptions",
    "Handlers",
    "Message",
    "Transactional",
    "seconds",
]

#: Whether a handler runs in a transaction: the worker's own, or that of a connection which this answers.
Transactional = bool | Callable[[], AbstractContextManager[Any]] | None


class HandlerOptions(TypedDict, total=False):
    """What a handler may be registered with."""

    concurrency: int | None
    timeout: Delay | None
    transactional: Transactional


Message = Any  # OutboxMessage or InboxMessage: what the box's claim answers

_RESULTS = (Ack, Retry, Release, DeadLetter)


def seconds(name: str, value: Delay | None) -> float | None:
    """A length of time in seconds; it must be above 0."""
    if value is None:
        return None
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InvalidArgument(f"{name}: must be seconds or a timedelta")
    if not 0 < number < float("inf"):
        raise InvalidArgument(f"{name}: must be above 0")
    return float(number)


class Handler:
    """One registered callable."""

    __slots__ = (
        "active",
        "batch",
        "concurrency",
        "decode",
        "function",
        "hanging",
        "is_async",
        "parked",
        "passed_over",
        "simple",
        "takes_context",
        "timeout",
        "topic",
        "transactional",
    )

    def __init__(
        self,
        topic: str,
        function: Callable[..., Any],
        *,
        batch: bool = False,
        concurrency: int | None = None,
        timeout: Delay | None = None,
        transactional: Transactional = None,
    ) -> None:
        if concurrency is not None and (isinstance(concurrency, bool) or concurrency < 1):
            raise InvalidArgument("concurrency: must be at least 1")
        self.topic = topic
        self.function = function
        self.batch = batch
        self.concurrency = concurrency
        self.timeout = seconds("timeout", timeout)
        self.decode = batch_decoder_for(function) if batch else decoder_for(function)
        self.takes_context = _takes_two(function)
        self.is_async = is_coroutine_function(function)
        #: Whether there is nothing to it but to call it with a message.
        self.transactional = transactional or None
        if transactional and self.is_async:
            raise InvalidArgument("transactional: must be left out for coroutine functions")
        if transactional and transactional is not True and not callable(transactional):
            raise InvalidArgument("transactional: must be True, or answer a context manager of a connection")
        self.simple = not (batch or concurrency or self.takes_context or self.is_async or transactional)
        #: How many of its places are taken, and how many of these by calls that have overrun their time.
        self.active = 0
        self.hanging = 0
        self.parked: deque[Assignment] = deque()
        self.passed_over = False

    def results_of(self, messages: Sequence[Message], answer: object) -> list[Result]:
        """An answer as one result per message."""
        return self.results(messages, answer) if self.batch else [result_of(answer)]

    def results(self, messages: Sequence[Message], answer: object) -> list[Result]:
        """A batch handler's answer as one result per message."""
        if answer is None:
            return [Ack()] * len(messages)
        if isinstance(answer, _RESULTS):
            return [answer] * len(messages)
        if isinstance(answer, Mapping):
            return [result_of(answer.get(message.id)) for message in messages]
        if isinstance(answer, Iterable):
            found = [result_of(item) for item in answer]
            if len(found) == len(messages):
                return found
            raise TypeError(
                f"the handler of {counted(len(messages), 'message')} answered {counted(len(found), 'result')}"
            )
        raise TypeError(
            f"a batch handler must answer None, a result or a list of them, not {type(answer).__name__}"
        )


def result_of(answer: object) -> Result:
    """One message's result: None means Ack."""
    if answer is None:
        return Ack()
    if isinstance(answer, _RESULTS):
        return answer
    raise TypeError(
        f"a handler must answer None, Ack, Retry, Release or DeadLetter, not {type(answer).__name__}"
    )


class Handlers:
    """The handlers of one worker, by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Handler] = {}
        self._limited: list[Handler] = []
        #: What is around every handler, the first registered outermost.
        self.middleware: tuple[Callable[..., Any], ...] = ()
        #: Whether one of them gets lists of messages, which a claim must not make longer than the batch size.
        self.any_batch = False
        self.any_async = False
        self.any_sync = False
        self._lock = threading.Lock()

    def add(self, handler: Handler, *, internal: bool = False) -> None:
        """Register a handler; a topic has one. ``internal``: it is the worker's own, and little to do."""
        with self._lock:
            if handler.topic in self._by_topic:
                raise InvalidArgument(
                    f"topic {handler.topic!r}: has a handler already; register one for each topic"
                )
            self._by_topic = {**self._by_topic, handler.topic: handler}
            self.any_batch = self.any_batch or handler.batch
            self.any_async = self.any_async or handler.is_async
            self.any_sync = self.any_sync or not (handler.is_async or internal)
            if handler.concurrency is not None:
                self._limited = [*self._limited, handler]

    def begin_anew(self) -> None:
        """In a forked child: nothing of what runs or waits in the parent is here."""
        self._lock = threading.Lock()
        for handler in self._limited:
            handler.active = handler.hanging = 0
            handler.parked = deque()

    def add_middleware(self, function: Callable[..., Any]) -> None:
        """Put a function around every handler, within those that were registered before."""
        check_takes("middleware", function, "message", "context", "call_next")
        with self._lock:
            self.middleware = (*self.middleware, function)

    def check(self, topics: Sequence[str] | None, own: str) -> list[str]:
        """Before a start: refuse middleware that does not fit; the topics that would never be claimed."""
        for function in self.middleware:
            for handler in self._by_topic.values():
                if handler.topic != own and is_coroutine_function(function) != handler.is_async:
                    wanted = "a coroutine function" if handler.is_async else "an ordinary function"
                    raise InvalidArgument(
                        f"middleware: {function!r} must be {wanted}, as the handler of {handler.topic!r} is"
                    )
        return [] if topics is None else [topic for topic in self._by_topic if topic not in {*topics, own}]

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    @property
    def by_topic(self) -> Mapping[str, Handler]:
        """The handlers as they are now; adding one makes a new mapping."""
        return self._by_topic

    def topics(self) -> list[str]:
        """Every topic with a handler."""
        return list(self._by_topic)

    def saturated(self) -> set[str]:
        """The topics that may not have another message started now."""
        if not self._limited:
            return set()
        found = [h for h in self._limited if h.active >= (h.concurrency or 0) or h.parked]
        for handler in found:
            handler.passed_over = True
        return {handler.topic for handler in found}

    def enter(self, handler: Handler, work: Assignment) -> bool:
        """Take one of a limited handler's places, or park the work until one is free."""
        with self._lock:
            if handler.active < (handler.concurrency or 0):
                handler.active += 1
                return True
            handler.parked.append(work)
            return False

    def hangs(self, handler: Handler) -> None:
        """A call has overrun its time; it keeps its place until it returns."""
        with self._lock:
            handler.hanging += 1

    def leave(self, handler: Handler, *, hung: bool) -> tuple[Assignment | None, bool]:
        """Give a place back: what was parked for it first, if anything, and whether to ask the database.

        That is so if claims have passed the topic over for want of a place, and nothing is parked any more.
        """
        with self._lock:
            handler.active -= 1
            handler.hanging -= hung
            parked = handler.parked.popleft() if handler.parked else None
            ask = handler.passed_over and not handler.parked
            if ask:
                handler.passed_over = False
            return parked, ask

    def unpark_hopeless(self) -> list[Assignment]:
        """What waits for places that are all held by calls that have overrun their time."""
        found: list[Assignment] = []
        for handler in self._limited:
            if handler.parked and handler.hanging:
                with self._lock:
                    if handler.hanging >= (handler.concurrency or 0):
                        found.extend(handler.parked)
                        handler.parked.clear()
        return found

    def unpark(self) -> list[Assignment]:
        """Everything that is parked, which is then nobody's (when the worker stops)."""
        with self._lock:
            found = [work for handler in self._limited for work in handler.parked]
            for handler in self._limited:
                handler.parked.clear()
            return found

    def parked(self) -> list[Assignment]:
        """Everything that is parked now, for the lease keeper."""
        return [work for handler in self._limited for work in list(handler.parked)]


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether a handler takes a second argument, the context; one that fits neither way is refused."""
    try:
        parameters = list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    required = [p for p in parameters if p.default is p.empty]
    positional = [p for p in required if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keywords = [p.name for p in required if p.kind is p.KEYWORD_ONLY]
    takes_one = any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters
    )
    if keywords or len(positional) > 2 or not takes_one:
        title = getattr(function, "__qualname__", type(function).__name__)
        raise InvalidArgument(
            f"handler {title}: must take (message) or (message, context)"
            + (f", not the argument {keywords[0]!r}" if keywords else "")
        )
    return len(positional) > 1
