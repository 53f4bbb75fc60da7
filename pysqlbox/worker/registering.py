"""What a handler may be, as type checkers see it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeVar, overload

from pysqlbox.messages import InboxMessage, OutboxMessage
from pysqlbox.worker.context import Context
from pysqlbox.worker.results import Result

__all__ = [
    "AroundFunction",
    "BatchHandlerOf",
    "ClassBatchHandler",
    "ClassHandler",
    "HandlerOf",
    "HookFunction",
]

#: What a handler answers.
Answer = Result | None
#: What a batch handler answers: one result for all, or one for each.
BatchAnswer = Result | Iterable[Result | None] | Mapping[int, Result | None] | None

#: A handler of a topic; its first parameter's annotation says what it gets.
AnyHandler = (
    Callable[[Any], Answer]
    | Callable[[Any, Context], Answer]
    | Callable[[Any], Coroutine[Any, Any, Answer]]
    | Callable[[Any, Context], Coroutine[Any, Any, Answer]]
)
#: A batch handler, which takes a list.
BatchHandler = (
    Callable[[list[Any]], BatchAnswer]
    | Callable[[list[Any], Context], BatchAnswer]
    | Callable[[list[Any]], Coroutine[Any, Any, BatchAnswer]]
    | Callable[[list[Any], Context], Coroutine[Any, Any, BatchAnswer]]
)
#: What is around handlers: it gets the message, or a batch handler's list, and what runs the rest.
Middleware = (
    Callable[[Any, Context, Callable[[], Any]], BatchAnswer]
    | Callable[[Any, Context, Callable[[], Any]], Coroutine[Any, Any, BatchAnswer]]
)
#: What is called at a start or an end; a coroutine that it answers is awaited.
Hook = Callable[[], object]

Function = TypeVar("Function", bound=AnyHandler)
Batch = TypeVar("Batch", bound=BatchHandler)
Given = TypeVar("Given", bound=Answer | Coroutine[Any, Any, Answer])
GivenForBatch = TypeVar("GivenForBatch", bound=BatchAnswer | Coroutine[Any, Any, BatchAnswer])
Object = TypeVar("Object")
AroundFunction = TypeVar("AroundFunction", bound=Middleware)
HookFunction = TypeVar("HookFunction", bound=Hook)


class HandlerOf(Protocol):
    """Registers the handler of a topic."""

    def __call__(self, function: Function, /) -> Function: ...


class BatchHandlerOf(Protocol):
    """Registers the batch handler of a topic."""

    def __call__(self, function: Batch, /) -> Batch: ...


class ClassHandler(Protocol[Object]):
    """Registers the handler of a message class: it takes such an object, or the message as it is."""

    @overload
    def __call__(self, function: Callable[[Object], Given], /) -> Callable[[Object], Given]: ...

    @overload
    def __call__(
        self, function: Callable[[Object, Context], Given], /
    ) -> Callable[[Object, Context], Given]: ...

    @overload
    def __call__(self, function: Callable[[OutboxMessage], Given], /) -> Callable[[OutboxMessage], Given]: ...

    @overload
    def __call__(
        self, function: Callable[[OutboxMessage, Context], Given], /
    ) -> Callable[[OutboxMessage, Context], Given]: ...

    @overload
    def __call__(self, function: Callable[[InboxMessage], Given], /) -> Callable[[InboxMessage], Given]: ...

    @overload
    def __call__(
        self, function: Callable[[InboxMessage, Context], Given], /
    ) -> Callable[[InboxMessage, Context], Given]: ...


class ClassBatchHandler(Protocol[Object]):
    """Registers the batch handler of a message class: it takes a list of such objects, or of messages."""

    @overload
    def __call__(
        self, function: Callable[[list[Object]], GivenForBatch], /
    ) -> Callable[[list[Object]], GivenForBatch]: ...

    @overload
    def __call__(
        self, function: Callable[[list[Object], Context], GivenForBatch], /
    ) -> Callable[[list[Object], Context], GivenForBatch]: ...

    @overload
    def __call__(
        self, function: Callable[[list[OutboxMessage]], GivenForBatch], /
    ) -> Callable[[list[OutboxMessage]], GivenForBatch]: ...

    @overload
    def __call__(
        self, function: Callable[[list[OutboxMessage], Context], GivenForBatch], /
    ) -> Callable[[list[OutboxMessage], Context], GivenForBatch]: ...

    @overload
    def __call__(
        self, function: Callable[[list[InboxMessage]], GivenForBatch], /
    ) -> Callable[[list[InboxMessage]], GivenForBatch]: ...

    @overload
    def __call__(
        self, function: Callable[[list[InboxMessage], Context], GivenForBatch], /
    ) -> Callable[[list[InboxMessage], Context], GivenForBatch]: ...
