"""Once per key: the idempotency ledger around the handlers of a message broker's consumers.

A broker delivers at least once. A consumer therefore asks the ledger before it handles a message ::

    once = Idempotent(db, bus="rabbitmq", group="billing", lease=60, release_on_error=True)

    @once("order.created", message_id=lambda delivery: delivery.headers["id"])
    def handle(delivery): ...

    with once.attempt(once.key("order.created", delivery.id)) as mine:
        if mine:
            ...

Two styles. With a *lease* whoever takes a key has that long: a consumer that crashes loses it, and meanwhile
others are told Busy, so that the broker delivers again later. *Mark before handle* (``lease=None``, the
default) takes a key for good before the handler runs: a message is handled at most once. A handler that
raises gives its key back if ``release_on_error`` is set; else it keeps it, for good or until its lease ends.

With ``enabled=False`` nothing is asked and nothing is marked: every handler runs.

With ``connection=`` everything happens in the caller's transaction: the mark commits with the handler's own
work, and a rollback takes both back. A second consumer of the key then waits until the first one's
transaction ends. When the handler raises, nothing is written through that connection any more: roll it back.

A consumer that only asks and marks (IsProcessed, MarkProcessed) has :meth:`Idempotent.is_processed` and
:meth:`Idempotent.mark_processed`; with the deployment of ``connect_async`` these are awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import inspect
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Generator
from datetime import datetime, timedelta
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Required,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from uuid import UUID

from pysqlbox.errors import InvalidArgument, PysqlboxError
from pysqlbox.http_ledger import HttpLedger
from pysqlbox.ledger import AsyncLedger
from pysqlbox.messages import LedgerClaim
from pysqlbox.signatures import is_coroutine_function, signature_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment
    from pysqlbox.ledger import Ledger

    Blocking = Ledger | HttpLedger
    #: Whose ledger it is: one that answers, or one whose answers are awaited.
    Kind = DefaultTypeVar("Kind", bound=Ledger | HttpLedger | AsyncLedger, default=Blocking)
else:
    Kind = TypeVar("Kind")

__all__ = ["Attempt", "Busy", "HttpLedger", "Idempotent", "IdempotentOptions", "ledger_key"]

Handler = TypeVar("Handler", bound=Callable[..., Any])
Answer = TypeVar("Answer")
OnBusy = Literal["raise", "skip"]

KEY_LENGTH = 512
_logger = logging.getLogger("pysqlbox.idempotent")


class Busy(PysqlboxError):
    """Somebody else is handling the message; try again later, at the latest when the lease ends."""

    def __init__(self, key: str, expires_at: datetime | None) -> None:
        until = f" until {expires_at:%Y-%m-%d %H:%M:%S} UTC" if expires_at is not None else ""
        super().__init__(f"key {key!r}: somebody else holds it{until}")
        self.key = key
        self.expires_at = expires_at


def ledger_key(bus: str, group: str, alias: str, message_id: object) -> str:
    """``bus:group:alias:id``, with the pieces escaped so that different pieces never make the same key.

    A key that would be too long for the ledger ends in a hash of itself.
    """
    pieces = {"bus": bus, "group": group, "alias": alias, "message_id": message_id}
    key = ":".join(_escape(name, piece) for name, piece in pieces.items())
    if _length(key) <= KEY_LENGTH:
        return key
    digest = "%#" + hashlib.sha256(key.encode()).hexdigest()  # "%#" comes from no escaping
    head = key[: KEY_LENGTH - len(digest)]
    while _length(head) > KEY_LENGTH - len(digest):
        head = head[:-1]
    return head + digest


def _escape(name: str, piece: object) -> str:
    if isinstance(piece, UUID) or (isinstance(piece, int) and not isinstance(piece, bool)):
        piece = str(piece)
    if not isinstance(piece, str) or not piece:
        raise InvalidArgument(f"{name}: must be text that is not empty")
    return "".join(_escaped(character) for character in piece)


def _escaped(character: str) -> str:
    """Colons part the pieces; no database takes a zero byte or half a character."""
    if character in "%:\x00" or "\ud800" <= character <= "\udfff":
        return f"%{ord(character):04X}"
    return character


def _length(key: str) -> int:
    """As the database counts that counts most: in UTF-16."""
    return len(key.encode("utf-16-le")) // 2


class Attempt:
    """One try to handle a key, for ``with`` and ``async with``; true if the key is this caller's."""

    def __init__(
        self, rules: Idempotent[Any], key: str, *, handler: str | None = None, connection: Any = None
    ) -> None:
        self.key = key
        self.status: str | None = None
        """Acquired, Processed or Busy; None before it began, and where the ledger is not enabled."""
        self.lost = False
        """Whether the lease ran out and somebody else took the key before the handler had ended."""
        self._rules = rules
        self._handler = handler
        self._connection = connection
        self._lease_id: UUID | None = None

    def __bool__(self) -> bool:
        return self._lease_id is not None or not self._rules.enabled

    def __enter__(self) -> Self:
        if self._rules.enabled:
            self._take(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    async def __aenter__(self) -> Self:
        if not self._rules.enabled:
            return self
        begun = asyncio.ensure_future(self._begin_async())
        try:
            claim = await asyncio.shield(begun)
        except asyncio.CancelledError as error:
            with contextlib.suppress(PysqlboxError):  # then nothing was taken
                self._lease_id = (await begun).lease_id
            await self._end_async(error)
            raise
        self._take(claim)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end_async(error)

    def _arguments(self) -> dict[str, Any]:
        arguments = {
            "key": self.key,
            "owner": self._rules.owner,
            "lease_seconds": self._rules.lease_seconds,
            "handler": None if self._handler is None else self._handler[-255:],
        }
        return {name: value for name, value in arguments.items() if value is not None}

    def _begin(self) -> LedgerClaim:
        return self._rules.blocking_ledger().try_begin(**self._arguments(), connection=self._connection)

    async def _begin_async(self) -> LedgerClaim:
        ledger = self._rules.ledger
        if isinstance(ledger, AsyncLedger):
            return await ledger.try_begin(**self._arguments(), connection=self._connection)
        return await asyncio.to_thread(self._begin)

    def _take(self, claim: LedgerClaim) -> None:
        self.status, self._lease_id = claim.status, claim.lease_id
        if self.status != "Acquired":
            _logger.info("key %r is %s, skipping it", self.key, self.status)
        if self.status == "Busy" and self._rules.on_busy == "raise":
            raise Busy(self.key, claim.expires_at)

    def _note_marked(self, affected: int) -> None:
        self.lost = not affected
        if self.lost:
            _logger.warning("key %r: somebody else took it before its handler had ended", self.key)

    def _end(self, error: BaseException | None) -> None:
        ledger = self._rules.blocking_ledger()
        if self._lease_id is None:
            return
        if error is None:
            self._note_marked(ledger.mark_processed(self.key, self._lease_id, connection=self._connection))
        elif self._gives_back(error):
            try:
                ledger.release(self.key, self._lease_id)
            except PysqlboxError as failure:  # the handler's own exception must not be lost
                self._note_kept(failure)

    async def _end_async(self, error: BaseException | None) -> None:
        ledger = self._rules.ledger
        if not isinstance(ledger, AsyncLedger):
            await asyncio.to_thread(self._end, error)
        elif self._lease_id is None:
            return
        elif error is None:
            marked = await ledger.mark_processed(self.key, self._lease_id, connection=self._connection)
            self._note_marked(marked)
        elif self._gives_back(error):
            try:
                await ledger.release(self.key, self._lease_id)
            except PysqlboxError as failure:
                self._note_kept(failure)

    def _gives_back(self, error: BaseException) -> bool:
        """Whether the claim of a handler that raised is released here; not in a caller's transaction."""
        if self._connection is not None:
            return False
        if not self._rules.release_on_error:
            _logger.error("key %r: its handler raised %s, keeping the claim", self.key, type(error).__name__)
            return False
        _logger.warning("key %r: its handler raised %s, releasing it", self.key, type(error).__name__)
        return True

    def _note_kept(self, failure: PysqlboxError) -> None:
        _logger.warning("key %r: not released: %s", self.key, failure)


class IdempotentOptions(TypedDict, total=False):
    """What an ``Idempotent`` is told besides its ledger."""

    bus: Required[str]
    group: Required[str]
    release_on_error: bool
    lease: float | timedelta | None
    retention: timedelta
    enabled: bool
    on_busy: OnBusy | None
    owner: str | None


class Idempotent(Generic[Kind]):
    """How a consumer group uses the ledger; itself a decorator of handlers."""

    @overload
    def __init__(
        self: Idempotent[AsyncLedger],
        store: AsyncDeployment | AsyncLedger,
        **options: Unpack[IdempotentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Idempotent[Blocking], store: Deployment | Blocking, **options: Unpack[IdempotentOptions]
    ) -> None: ...

    def __init__(
        self,
        store: Deployment | AsyncDeployment | Ledger | AsyncLedger | HttpLedger,
        *,
        bus: str,
        group: str,
        release_on_error: bool = False,
        lease: float | timedelta | None = None,
        retention: timedelta = timedelta(days=7),
        enabled: bool = True,
        on_busy: OnBusy | None = None,
        owner: str | None = None,
    ) -> None:
        """``store`` is a deployment or its ledger, or that of a service, which knows no caller's connections.

        With ``connect_async``'s deployment the handlers are coroutine functions, and the other methods are
        awaited; else handlers may be either.

        ``lease=None`` marks before it handles, for good; then a Busy key is skipped. With a lease it raises
        ``Busy``, unless ``on_busy`` says otherwise. ``enabled=False``: every handler runs, unasked.
        """
        if on_busy not in (None, "raise", "skip"):
            raise InvalidArgument("on_busy: must be 'raise' or 'skip'")
        if retention <= timedelta(0):
            raise InvalidArgument("retention: must be above 0")
        self.ledger = cast(Kind, getattr(store, "ledger", store))
        self.bus = bus
        self.group = group
        self.lease_seconds = _lease_seconds(lease)
        self.release_on_error = release_on_error
        self.on_busy = on_busy or ("skip" if lease is None else "raise")
        self.retention = retention
        self.enabled = enabled
        self.owner = (owner or f"{socket.gethostname()}:{os.getpid()}")[:255]
        ledger_key(bus, group, "alias", "id")

    def blocking_ledger(self) -> Ledger | HttpLedger:
        """The ledger for those who wait; an AsyncDeployment's answers only those who await it."""
        if isinstance(self.ledger, AsyncLedger):
            raise InvalidArgument(
                "store: must be of connect(); an AsyncDeployment is for coroutine functions and async with"
            )
        return self.ledger

    def key(self, alias: str, message_id: object) -> str:
        """The key of a message: ``bus:group:alias:id``, escaped, and hashed where it is too long."""
        return ledger_key(self.bus, self.group, alias, message_id)

    def attempt(self, key: str, *, handler: str | None = None, connection: Any = None) -> Attempt:
        """A context manager that takes the key, and marks it processed if its body ends well.

        Ask the attempt whether the key is yours: the body also runs for one that is processed already.
        """
        if connection is not None and isinstance(self.ledger, HttpLedger):
            raise InvalidArgument(
                "connection: must not be given, for a service's ledger is in no transaction of its caller's"
            )
        return Attempt(self, key, handler=handler, connection=connection)

    def __call__(
        self,
        alias: str,
        *,
        message_id: str | Callable[..., object] = "message_id",
        connection: str | Callable[..., Any] | None = None,
    ) -> Callable[[Handler], Handler]:
        """Decorate a handler, sync or async, so that it runs once per message; a duplicate answers None.

        ``message_id`` names an attribute of the first argument, or computes the id from the arguments.
        ``connection`` names the parameter that brings the caller's open connection, or finds it likewise.
        """

        def decorate(function: Handler) -> Handler:
            signature = signature_of(function)
            name = getattr(function, "__qualname__", type(function).__qualname__)
            if isinstance(connection, str) and connection not in signature.parameters:
                raise InvalidArgument(
                    f"connection: {name} has no parameter {connection!r}; name one of the function's"
                )

            is_async = is_coroutine_function(function)
            if not is_async:
                self.blocking_ledger()

            def attempt(arguments: tuple[Any, ...], named: dict[str, Any]) -> Attempt:
                identity = _identity(message_id, arguments, named)
                given = connection
                if isinstance(given, str):
                    given = signature.bind(*arguments, **named).arguments.get(given)
                elif given is not None:
                    given = given(*arguments, **named)
                return self.attempt(self.key(alias, identity), handler=name, connection=given)

            @functools.wraps(function)
            def call(*arguments: Any, **named: Any) -> Any:
                with attempt(arguments, named) as mine:
                    answer = function(*arguments, **named) if mine else None
                    if inspect.iscoroutine(answer):  # nothing of it has run, so nothing is processed
                        answer.close()
                        raise InvalidArgument(
                            f"{name}: answers a coroutine and is no coroutine function; decorate that first,"
                            " and what wraps it afterwards"
                        )
                    return answer

            @functools.wraps(function)
            async def call_async(*arguments: Any, **named: Any) -> Any:
                async with attempt(arguments, named) as mine:
                    return await function(*arguments, **named) if mine else None

            return cast(Handler, call_async if is_async else call)

        return decorate

    @overload
    def is_processed(
        self: Idempotent[AsyncLedger], key: str, *, connection: Any = None
    ) -> Coroutine[Any, Any, bool]: ...

    @overload
    def is_processed(self: Idempotent[Blocking], key: str, *, connection: Any = None) -> bool: ...

    def is_processed(self, key: str, *, connection: Any = None) -> Any:
        """Whether a key was handled; one that somebody is handling now was not yet."""

        def steps() -> _Asking[bool]:
            return bool((yield self.ledger.is_processed(key, connection=connection)))

        return self._ask(steps())

    @overload
    def mark_processed(
        self: Idempotent[AsyncLedger], key: str, *, connection: Any = None
    ) -> Coroutine[Any, Any, bool]: ...

    @overload
    def mark_processed(self: Idempotent[Blocking], key: str, *, connection: Any = None) -> bool: ...

    def mark_processed(self, key: str, *, connection: Any = None) -> Any:
        """Mark a key, whoever may hold it; false if it was marked already."""

        def steps() -> _Asking[bool]:
            return bool((yield self.ledger.mark_processed(key, connection=connection)))

        return self._ask(steps())

    @overload
    def cleanup(self: Idempotent[AsyncLedger], *, batch_size: int = 1000) -> Coroutine[Any, Any, int]: ...

    @overload
    def cleanup(self: Idempotent[Blocking], *, batch_size: int = 1000) -> int: ...

    def cleanup(self, *, batch_size: int = 1000) -> Any:
        """Remove the keys older than the retention, in short transactions; claims that hold stay."""

        def steps() -> _Asking[int]:
            total = 0
            while True:
                removed = yield self.ledger.cleanup(self.retention.total_seconds(), batch_size=batch_size)
                total += int(removed)
                if removed < batch_size:
                    return total

        return self._ask(steps())

    def _ask(self, steps: _Asking[Answer]) -> Answer | Coroutine[Any, Any, Answer]:
        """Ask the ledger step by step: at once, or, where its answers are awaited, in a coroutine."""
        return _awaited(steps) if isinstance(self.ledger, AsyncLedger) else _answered(steps)


#: What asks a ledger: it yields each answer as the ledger's method gave it, and is sent what that came to.
_Asking = Generator[Any, Any, Answer]


def _answered(steps: _Asking[Answer]) -> Answer:
    try:
        answer = next(steps)
        while True:
            answer = steps.send(answer)
    except StopIteration as end:
        return cast(Answer, end.value)


async def _awaited(steps: _Asking[Answer]) -> Answer:
    try:
        answer = await next(steps)
        while True:
            answer = await steps.send(answer)
    except StopIteration as end:
        return cast(Answer, end.value)


def _lease_seconds(lease: float | timedelta | None) -> int | None:
    seconds = lease.total_seconds() if isinstance(lease, timedelta) else lease
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not 1 <= seconds <= 86400 or seconds != int(seconds):
        raise InvalidArgument("lease: must be whole seconds from 1 to 86400, or None")
    return int(seconds)


def _identity(
    message_id: str | Callable[..., object], arguments: tuple[Any, ...], named: dict[str, Any]
) -> object:
    """The id of the message that a handler is called with."""
    if callable(message_id):
        return message_id(*arguments, **named)
    first = arguments[0] if arguments else next(iter(named.values()), None)
    try:
        return getattr(first, message_id)
    except AttributeError as error:
        raise InvalidArgument(
            f"message_id: {type(first).__qualname__} has no {message_id!r}; name an attribute of it,"
            " or give a function"
        ) from error
