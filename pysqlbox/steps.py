"""Methods that are described once, for those who wait for an answer and for those who await it.

A method is a generator: it yields the calls it needs, is sent the rows of each, and returns its answer. It
never touches a connection itself, so it does not know whether anybody waits. Two faces make methods of it ::

    class BoxMethods:
        @routine
        def ack(self, owner_token: UUID, ids: Ids, *, connection: Any = None) -> Steps[int]:
            rows = yield Call("outbox_ack", {"owner_token": owner_token, "ids": ids}, connection)
            return int(rows[0][0])

    class Outbox(BoxMethods, Blocking): ...  # outbox.ack(token, [1])
    class AsyncOutbox(BoxMethods, Awaiting): ...  # await outbox.ack(token, [1])

Type checkers see the arguments and the answer of each through ``routine``.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from pysqlbox.drivers import Values
from pysqlbox.errors import PysqlboxError

if TYPE_CHECKING:
    from pysqlbox.deployment_base import DeploymentBase

__all__ = ["Awaiting", "Blocking", "Call", "Named", "Probe", "Steps", "drive", "drive_async", "routine"]

P = ParamSpec("P")
R = TypeVar("R")


class Call:
    """One routine with its arguments, to be run in the caller's transaction if there is a connection.

    ``repeat``: it may be made twice, so it is made again if the connection was lost on the way.
    """

    __slots__ = ("arguments", "connection", "repeat", "routine")
    #: Whether only the routine's existence is asked for.
    probe = False

    def __init__(
        self, routine: str, arguments: Mapping[str, object], connection: Any = None, repeat: bool = False
    ) -> None:
        self.routine = routine
        self.arguments = arguments
        self.connection = connection
        self.repeat = repeat


class Probe(Call):
    """The question whether the schema has a routine; the answer is a row with true or false."""

    __slots__ = ()
    probe = True

    def __init__(self, routine: str) -> None:
        super().__init__(routine, {}, None, True)


#: What a described method is: calls out, rows in, and an answer at the end.
Steps = Generator[Call, list[Values], R]


def drive(steps: Steps[R], perform: Callable[[Call], list[Values]]) -> R:
    """Make the calls of a described method one after the other, and answer what it answers."""
    try:
        call = next(steps)
        while True:
            try:
                rows = perform(call)
            except PysqlboxError as error:
                call = steps.throw(error)
            else:
                call = steps.send(rows)
    except StopIteration as end:
        answer: R = end.value
        return answer


async def drive_async(steps: Steps[R], perform: Callable[[Call], Awaitable[list[Values]]]) -> R:
    """The same, awaiting each call."""
    try:
        call = next(steps)
        while True:
            try:
                rows = await perform(call)
            except PysqlboxError as error:
                call = steps.throw(error)
            else:
                call = steps.send(rows)
    except StopIteration as end:
        answer: R = end.value
        return answer


class routine(Generic[P, R]):
    """A described method; ``steps`` is the generator function itself, for other descriptions."""

    def __init__(self, function: Callable[Concatenate[Any, P], Steps[R]]) -> None:
        self.steps = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, R]: ...

    @overload
    def __get__(self, instance: Awaiting, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def __get__(self, instance: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], R]: ...

    @overload
    def __get__(
        self, instance: None, owner: type[Awaiting]
    ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]: ...

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    def __get__(self, instance: object, owner: type) -> Any:
        """On a class that is only a description: the description. A face has ordinary methods instead."""
        if instance is not None:
            raise TypeError(f"{owner.__name__} is only a description: it is neither Blocking nor Awaiting")
        return self


class Blocking:
    """The face whose methods wait."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _install(cls, _waiting)


class Awaiting:
    """The face whose methods are coroutine functions."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _install(cls, _awaiting)


def _install(face: type, make: Callable[[FunctionType], Callable[..., Any]]) -> None:
    """Give a face an ordinary method for each description that it inherits and does not replace."""
    seen: set[str] = set()
    for base in face.__mro__:
        for name, value in list(vars(base).items()):
            if name not in seen and isinstance(value, routine):
                setattr(face, name, make(value.steps))  # type: ignore[arg-type]  # a decorated def
            seen.add(name)


def _waiting(described: FunctionType) -> Callable[..., Any]:
    @functools.wraps(described)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return self.deployment.run(described(self, *arguments, **named))

    return _answering(method, described)


def _awaiting(described: FunctionType) -> Callable[..., Any]:
    @functools.wraps(described)
    async def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return await self.deployment.run(described(self, *arguments, **named))

    return _answering(method, described)


def _answering(method: Callable[..., Any], described: FunctionType) -> Callable[..., Any]:
    """Let the method's signature, as ``help`` shows it, end in what it answers and not in its steps."""
    twin = FunctionType(described.__code__, described.__globals__, described.__name__, described.__defaults__)
    twin.__kwdefaults__ = described.__kwdefaults__
    answer = str(described.__annotations__["return"]).removeprefix("Steps[").removesuffix("]")
    twin.__annotations__ = method.__annotations__ = {**described.__annotations__, "return": answer}
    method.__wrapped__ = twin  # type: ignore[attr-defined]  # what inspect.signature follows
    return method


class Named:
    """Routines of a deployment whose names begin alike."""

    def __init__(self, db: DeploymentBase, name: str) -> None:
        self.deployment = db
        self.name = name

    def __repr__(self) -> str:
        db = self.deployment
        return f"<pysqlbox.{type(self).__name__} {self.name!r} of {db.target} schema={db.schema!r}>"

    def _call(
        self, step: str, arguments: Mapping[str, object], connection: Any, *, repeat: bool = False
    ) -> Call:
        return Call(f"{self.name}_{step}", arguments, connection, repeat)

    def _affected(self, step: str, arguments: Mapping[str, object], connection: Any) -> Steps[int]:
        """The count of a step that may be made twice: what the first one moved, the second leaves alone."""
        rows = yield Call(f"{self.name}_{step}", arguments, connection, True)
        return int(rows[0][0])
