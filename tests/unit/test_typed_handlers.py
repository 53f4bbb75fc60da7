"""What a handler gets: the message as it is, or what its first parameter is annotated with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import pytest

from pysqlbox.errors import InvalidArgument
from pysqlbox.messages import InboxMessage, OutboxMessage
from pysqlbox.typed import Undecodable, batch_decoder_for, decoder_for

if TYPE_CHECKING:
    from pysqlbox import messages

Message = TypeVar("Message", OutboxMessage, InboxMessage)
NOW = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass
class Order:
    id: int


def _outbox(payload: str) -> OutboxMessage:
    return OutboxMessage(1, UUID(int=1), "t", payload, None, None, 0, None, 0, NOW, None, None, None, NOW)


def _inbox(payload: str) -> InboxMessage:
    return InboxMessage(1, "1", "s", "t", payload, None, None, 0, None, 0, NOW, NOW, None, None, None, NOW)


def bare(message):  # type: ignore[no-untyped-def]  # what the test is about
    pass


def nothing() -> None: ...
def any_number(*messages: Order) -> None: ...
def anything(message: Any, context: object) -> None: ...
def thing(message: object) -> None: ...
def outgoing(message: OutboxMessage) -> None: ...
def either(message: OutboxMessage | InboxMessage) -> None: ...
def perhaps(message: InboxMessage | None) -> None: ...
def generic(message: Message) -> None: ...
def hidden_module(message: messages.OutboxMessage | messages.InboxMessage) -> None: ...
def hidden_perhaps(message: messages.OutboxMessage | None) -> None: ...
def broken_answer(message: OutboxMessage) -> NoSuchThing: ...  # type: ignore[name-defined]  # noqa: F821


def typed(message: Order, context: object = None) -> None: ...
async def asynchronous(message: Order) -> None: ...
def quoted(message: "list[Order] | None") -> None: ...  # noqa: UP037  # quoted twice, as some write it


class Service:
    def method(self, message: Order) -> None: ...

    @classmethod
    def of_class(cls, message: Order) -> None: ...

    @staticmethod
    def static(message: Order) -> None: ...

    def __call__(self, message: Order) -> None: ...


def second(first: str, message: Order) -> None: ...


@functools.wraps(typed)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        bare,
        nothing,
        any_number,
        anything,
        thing,
        outgoing,
        either,
        perhaps,
        generic,
        hidden_module,
        hidden_perhaps,
        broken_answer,
        lambda _: None,
        print,
        dict.fromkeys,
    ],
)
def test_handlers_of_messages_get_them_as_they_are(function: Callable[..., Any]) -> None:
    assert decoder_for(function) is None


@pytest.mark.parametrize(
    "function",
    [
        typed,
        asynchronous,
        wrapped,
        Service().method,
        Service.of_class,
        Service.static,
        Service(),
        functools.partial(second, "first"),
        functools.partial(typed, context=1),
        functools.partial(Service().method),
    ],
)
def test_handlers_of_objects_get_the_decoded_payload(function: Callable[..., Any]) -> None:
    decode = decoder_for(function)
    assert decode is not None
    assert decode(_outbox('{"id": 5}')) == decode(_inbox('{"id": 5}')) == Order(5)
    with pytest.raises(Undecodable):
        decode(_outbox("5"))


def test_annotations_within_quotes_and_builtins() -> None:
    def number(message: int) -> None: ...
    def text(message: str) -> None: ...
    def mapping(message: dict[str, Any]) -> None: ...

    for function, payload, value in (
        (quoted, '[{"id": 1}]', [Order(1)]),
        (number, "7", 7),
        (text, "{not json", "{not json"),
        (mapping, '{"a": 1}', {"a": 1}),
    ):
        decode = decoder_for(function)
        assert decode is not None
        assert decode(_outbox(payload)) == value


def test_classes_of_the_defining_function_are_known() -> None:
    """Though annotations are postponed and name what no module has."""

    @dataclass
    class Part:
        number: int

    @dataclass
    class Whole:
        parts: list[Part]

    def register() -> Any:
        def handle(message: Whole) -> None: ...

        return decoder_for(handle)

    assert register()(_outbox('{"parts": [{"number": 1}]}')) == Whole([Part(1)])


def test_what_cannot_be_decoded_is_refused_when_the_handler_is_registered() -> None:
    def unknown(message: NoSuchThing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def mixed(message: OutboxMessage | Order) -> None: ...
    def raw_bytes(message: bytes) -> None: ...

    for function, reason in (
        (unknown, "nothing is known by the name NoSuchThing"),
        (mixed, "must take either messages or payloads"),
        (raw_bytes, "must be made of what JSON has, and bytes"),
    ):
        with pytest.raises(InvalidArgument, match=rf"handler \S+: .*{reason}"):
            decoder_for(function)


def test_batch_handlers_of_messages_get_them_as_they_are() -> None:
    def raw(messages: list[OutboxMessage]) -> None: ...
    def both(messages: Sequence[OutboxMessage | InboxMessage]) -> None: ...
    def untyped(messages: list) -> None: ...  # type: ignore[type-arg]  # what the test is about

    for function in (raw, both, untyped, bare, anything, thing):
        assert batch_decoder_for(function) is None


def test_batch_handlers_of_objects_get_each_payload_decoded() -> None:
    def orders(messages: list[Order]) -> None: ...
    def sequence(messages: Sequence[Order]) -> None: ...
    def iterable(messages: Iterable[Order]) -> None: ...
    def texts(messages: list[str]) -> None: ...

    for function in (orders, sequence, iterable):
        decode = batch_decoder_for(function)
        assert decode is not None
        assert decode(_outbox('{"id": 5}')) == Order(5)
    decode = batch_decoder_for(texts)
    assert decode is not None
    assert decode(_outbox("as it is")) == "as it is"


def test_a_batch_handler_of_one_object_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="a batch handler must take a list, not Order"):
        batch_decoder_for(typed)
