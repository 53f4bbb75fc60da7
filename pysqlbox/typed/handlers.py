"""What a handler's first parameter asks for: the message as it is, or its payload as an object."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pysqlbox.errors import InvalidArgument
from pysqlbox.signatures import signature_of
from pysqlbox.typed.decoding import decoder
from pysqlbox.typed.shapes import describe, members, strip

if TYPE_CHECKING:
    from pysqlbox.messages import InboxMessage, OutboxMessage

__all__ = ["MessageDecoder", "batch_decoder_for", "decoder_for"]

MessageDecoder = Callable[["OutboxMessage | InboxMessage"], Any]

_RAW_NAMES = {"OutboxMessage", "InboxMessage", "None"}
_BATCHES = (list, Sequence, Iterable)


def decoder_for(function: Callable[..., Any]) -> MessageDecoder | None:
    """What makes of a message what the first parameter is annotated with; None if it takes messages."""
    kind, names = _first_annotation(function)
    return _decoder_of(function, kind, names)


def batch_decoder_for(function: Callable[..., Any]) -> MessageDecoder | None:
    """The same for a handler of ``list[T]``: decodes one message at a time to a T."""
    kind, names = _first_annotation(function)
    kind = strip(kind)
    if kind is inspect.Parameter.empty or kind is Any or kind is object or kind in _BATCHES:
        return None
    if get_origin(kind) not in _BATCHES:
        raise InvalidArgument(f"{_title(function)}: a batch handler must take a list, not {describe(kind)}")
    return _decoder_of(function, get_args(kind)[0], names)


def _decoder_of(function: Callable[..., Any], kind: Any, names: Mapping[str, Any]) -> MessageDecoder | None:
    kind = strip(kind)
    parts = members(kind)
    raw = [_is_raw(part) for part in parts if part is not type(None)]
    if all(raw):
        return None
    if any(raw):
        raise InvalidArgument(
            f"{_title(function)}: must take either messages or payloads, not {describe(kind)}"
        )
    try:
        decode = decoder(kind, names)
    except InvalidArgument as error:
        raise InvalidArgument(f"{_title(function)}: {error}") from error
    return lambda message: decode(message.payload)


def _is_raw(kind: Any) -> bool:
    from pysqlbox.messages import InboxMessage, OutboxMessage

    return kind is inspect.Parameter.empty or kind in (Any, object, OutboxMessage, InboxMessage)


def _first_annotation(function: Callable[..., Any]) -> tuple[Any, Mapping[str, Any]]:
    """The type of the first positional parameter, and the names known where the function is defined."""
    try:
        parameters = list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return inspect.Parameter.empty, {}
    first = next(iter(parameters), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return inspect.Parameter.empty, {}
    names = _names_around(_defined(function))
    annotation = first.annotation
    if isinstance(annotation, str):
        annotation = _resolve(function, annotation, names)
    return annotation, names


def _defined(function: Any) -> Any:
    """The function that was written with ``def``, under whatever wraps it."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        function = getattr(type(function), "__call__", function)  # noqa: B004  # it is the call's own code we want
    return getattr(function, "__func__", function)


def _names_around(function: Any) -> dict[str, Any]:
    """The local names of the functions in which this one is being defined, if they still run."""
    code = getattr(function, "__code__", None)
    outer, separator, _ = getattr(function, "__qualname__", "").rpartition(".<locals>.")
    names: dict[str, Any] = {}
    if code is None or not separator:
        return names
    frame = inspect.currentframe()
    while frame is not None:
        same_file = frame.f_code.co_filename == code.co_filename
        if same_file and _encloses(frame.f_code.co_qualname, outer):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _encloses(candidate: str, outer: str) -> bool:
    return outer == candidate or outer.startswith(f"{candidate}.<locals>.")


def _resolve(function: Callable[..., Any], annotation: str, names: Mapping[str, Any]) -> Any:
    """The type that a postponed annotation names."""
    defined = _defined(function)
    local = {**names, **_cells(defined)}
    holder = types.SimpleNamespace(__annotations__={"first": annotation})
    try:
        return typing.get_type_hints(holder, getattr(defined, "__globals__", {}), local, include_extras=True)[
            "first"
        ]
    except NameError as error:
        if {part.strip().rpartition(".")[2] for part in annotation.split("|")} <= _RAW_NAMES:
            return Any  # imported for type checkers only
        raise InvalidArgument(
            f"{_title(function)}: nothing is known by the name {error.name}; import it where the function is"
        ) from error


def _cells(function: Any) -> dict[str, Any]:
    """What a function's closure holds by now."""
    found = {}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found


def _title(function: Any) -> str:
    return f"handler {getattr(_defined(function), '__qualname__', type(function).__name__)}"
