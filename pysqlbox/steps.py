"""Methods that are described once, for those who wait for an answer and for those who await it.

A method answers a call and what to make of its rows; or, where it needs several calls, it is a generator
that yields them, is sent the rows of each, and returns its answer. It never touches a connection itself, so
it does not know whether anybody waits. Two faces make methods of it ::

    class BoxMethods:
        @routine
        def ack(self, owner_token: UUID, ids: Ids, *, connection: Any = None) -> Call[int]:
            arguments = {"owner_token": owner_token, "ids": ids}
            return Call("outbox_ack", arguments, connection, read=lambda rows: int(rows[0][0]))

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

__all__ = [
    "Awaiting",
    "Blocking",
    "BoxNames",
    "Call",
    "Described",
    "Doings",
    "Named",
    "Probe",
    "Steps",
    "do",
    "do_async",
    "drive",
    "drive_async",
    "routine",
    "through",
]

P = ParamSpec("P")
R = TypeVar("R")


def rows_of(rows: list[Values]) -> list[Values]:
    """The rows as they are."""
    return rows


def count_of(rows: list[Values]) -> int:
    """The number that is all of an answer."""
    return int(rows[0][0])


class Call(Generic[R]):
    """One routine with its arguments, to be run in the caller's transaction if there is a connection.

    ``repeat``: it may be made twice, so it is made again if the connection was lost on the way.
    ``read``: what to make of its rows.
    """

    __slots__ = ("arguments", "connection", "read", "repeat", "routine")
    #: Whether it asks what there is, in place of running anything: see Probe and BoxNames.
    probe = False

    def __init__(
        self,
        routine: str,
        arguments: Mapping[str, object],
        connection: Any = None,
        repeat: bool = False,
        read: Callable[[list[Values]], R] = rows_of,  # type: ignore[assignment]  # R is then what it answers
    ) -> None:
        self.routine = routine
        self.arguments = arguments
        self.connection = connection
        self.repeat = repeat
        self.read = read

    def __iter__(self) -> Steps[R]:
        """As the only step of a method, or one of a generator's: ``yield from``."""
        rows = yield self
        return self.read(rows)


class Probe(Call[bool]):
    """The question whether the schema has a routine."""

    __slots__ = ()
    probe = True

    def __init__(self, routine: str) -> None:
        super().__init__(routine, {}, None, True, lambda rows: bool(rows[0][0]))


class BoxNames(Call[list[Values]]):
    """The question which boxes the schema has routines for."""

    __slots__ = ()
    probe = True

    def __init__(self) -> None:
        super().__init__("", {}, None, True)


#: What a method of several calls is: calls out, rows in, and an answer at the end.
Steps = Generator[Call[Any], list[Values], R]
#: What a described method answers.
Described = Call[R] | Steps[R]
#: Functions to be called one after the other, by those who await each with ``await``; answers come back in.
Doings = Generator[Callable[[], Any], Any, R]


def drive(steps: Described[R], perform: Callable[[Call[Any]], list[Values]]) -> R:
    """Make the calls of a described method one after the other, and answer what it answers."""
    if isinstance(steps, Call):
        return steps.read(perform(steps))
    return _each(steps, perform)


async def drive_async(steps: Described[R], perform: Callable[[Call[Any]], Awaitable[list[Values]]]) -> R:
    """The same, awaiting each call."""
    if isinstance(steps, Call):
        return steps.read(await perform(steps))
    return await _each_awaited(steps, perform)


def through(steps: Steps[R], perform: Callable[[Call[Any]], Doings[list[Values]]]) -> Doings[R]:
    """The steps of a described method, each call made by what ``perform`` does."""
    try:
        call = next(steps)
        while True:
            try:
                rows = yield from perform(call)
            except PysqlboxError as error:
                call = steps.throw(error)
            else:
                call = steps.send(rows)
    except StopIteration as end:
        answer: R = end.value
        return answer


def do(doings: Doings[R]) -> R:
    """Do one thing after the other."""
    return _each(doings, _call)


async def do_async(doings: Doings[R]) -> R:
    """The same, awaiting each."""
    return await _each_awaited(doings, _call)


def _call(function: Callable[[], Any]) -> Any:
    return function()


def _each(steps: Generator[Any, Any, R], perform: Callable[[Any], Any]) -> R:
    try:
        step = next(steps)
        while True:
            try:
                answer = perform(step)
            except BaseException as error:  # noqa: BLE001  # the steps decide what it means
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        found: R = end.value
        return found


async def _each_awaited(steps: Generator[Any, Any, R], perform: Callable[[Any], Awaitable[Any]]) -> R:
    try:
        step = next(steps)
        while True:
            try:
                answer = await perform(step)
            except BaseException as error:  # noqa: BLE001  # the steps decide what it means
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        found: R = end.value
        return found


class routine(Generic[P, R]):
    """A described method; ``steps`` is the function itself, for other descriptions."""

    def __init__(self, function: Callable[Concatenate[Any, P], Described[R]]) -> None:
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
        steps = described(self, *arguments, **named)
        if type(steps) is Call:
            return steps.read(self.deployment.perform(steps))
        return drive(steps, self.deployment.perform)

    return _answering(method, described)


def _awaiting(described: FunctionType) -> Callable[..., Any]:
    @functools.wraps(described)
    async def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return await drive_async(described(self, *arguments, **named), self.deployment.perform)

    return _answering(method, described)


def _answering(method: Callable[..., Any], described: FunctionType) -> Callable[..., Any]:
    """Let the method's signature, as ``help`` shows it, end in what it answers and not in its steps."""
    twin = FunctionType(described.__code__, described.__globals__, described.__name__, described.__defaults__)
    twin.__kwdefaults__ = described.__kwdefaults__
    answer = str(described.__annotations__["return"]).partition("[")[2].removesuffix("]")
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
    ) -> Call[list[Values]]:
        return Call(f"{self.name}_{step}", arguments, connection, repeat, rows_of)

    def _affected(self, step: str, arguments: Mapping[str, object], connection: Any) -> Call[int]:
        """The count of a step that may be made twice: what the first one moved, the second leaves alone."""
        return Call(f"{self.name}_{step}", arguments, connection, True, count_of)
