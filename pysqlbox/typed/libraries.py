"""pydantic models and msgspec Structs decode themselves; neither is imported unless somebody else did."""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from pysqlbox.errors import InvalidArgument
from pysqlbox.typed.errors import Undecodable
from pysqlbox.typed.shapes import describe, strip

__all__ = ["decoder_of_library"]

#: The texts of msgspec that name nothing but types and the Struct's own fields.
_SAFE = re.compile(
    r"(Expected `[\w |]+`(, got `\w+`)?|Object missing required field `\w+`"
    r"|Invalid (UUID|RFC3339 encoded (datetime|date|time)|decimal string))( - at `[$\w.\[\]]+`)?"
)


def decoder_of_library(kind: Any, local_names: Mapping[str, Any]) -> Callable[[str], Any] | None:
    """The decoder of a type in which a pydantic model or a Struct occurs; None where neither does."""
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    if pydantic is None and msgspec is None:
        return None
    parts = list(_parts(kind, local_names, set()))
    models = pydantic is not None and any(_is_model(pydantic, part) for part in parts)
    structs = msgspec is not None and any(_is_subclass(part, msgspec.Struct) for part in parts)
    if models and structs:
        raise InvalidArgument(f"{describe(kind)}: must not mix pydantic models and msgspec Structs")
    if models:
        return _pydantic(pydantic, kind, parts, local_names)
    return _msgspec(msgspec, kind) if structs else None


def _pydantic(
    pydantic: Any, kind: Any, parts: list[Any], local_names: Mapping[str, Any]
) -> Callable[[str], Any]:
    try:
        adapter = pydantic.TypeAdapter(kind)
        if not getattr(adapter, "pydantic_complete", True):
            adapter.rebuild(_types_namespace=dict(local_names))
    except (pydantic.PydanticUserError, NameError) as error:
        raise InvalidArgument(
            f"the payload's type must be one that pydantic takes, and {describe(kind)} is none"
        ) from error
    validate = adapter.validate_json
    known = {name for part in parts for name in _field_names(part)}
    title = describe(kind)

    def decode(payload: str) -> Any:
        try:
            return validate(payload)
        except pydantic.ValidationError as error:
            # Neither its text nor its message: both quote the input, and a location quotes an object's keys.
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            steps = [step if step in known or isinstance(step, int) else "…" for step in first["loc"]]
            where = ".".join(str(step) for step in steps)
            reason = f"{where}: {first['type']}" if where else str(first["type"])
        raise Undecodable(f"the payload is no {title}: {reason}")

    return decode


def _msgspec(msgspec: Any, kind: Any) -> Callable[[str], Any]:
    try:
        parse = msgspec.json.Decoder(kind).decode
    except (TypeError, NameError) as error:
        raise InvalidArgument(
            f"the payload's type must be one that msgspec takes, and {describe(kind)} is none"
        ) from error
    title = describe(kind)

    def decode(payload: str) -> Any:
        try:
            return parse(payload)
        except msgspec.ValidationError as error:
            text = str(error)
            reason = text if _SAFE.fullmatch(text) else "a value is not allowed"
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            reason = "it is not JSON"
        raise Undecodable(f"the payload is no {title}: {reason}")

    return decode


def _is_model(pydantic: Any, part: Any) -> bool:
    return _is_subclass(part, pydantic.BaseModel) or (
        dataclasses.is_dataclass(part) and hasattr(part, "__pydantic_validator__")
    )


def _is_subclass(part: Any, base: type) -> bool:
    return isinstance(part, type) and issubclass(part, base)


def _parts(kind: Any, local_names: Mapping[str, Any], seen: set[int]) -> Iterator[Any]:
    """Every class that occurs in a type, also within dataclasses and TypedDicts."""
    kind = strip(kind)
    if id(kind) in seen:
        return
    seen.add(id(kind))
    yield kind
    for argument in get_args(kind):
        yield from _parts(argument, local_names, seen)
    origin = typing.get_origin(kind)
    if origin is not None:
        yield from _parts(origin, local_names, seen)
    elif isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "__annotations__")):
        try:
            hints = typing.get_type_hints(kind, localns=dict(local_names))
        except (NameError, TypeError):  # whoever decodes it says so
            return
        for hint in hints.values():
            yield from _parts(hint, local_names, seen)


def _field_names(part: Any) -> Iterator[str]:
    for name, field in getattr(part, "__pydantic_fields__", {}).items():
        yield name
        for alias in (field.alias, field.validation_alias):
            if isinstance(alias, str):
                yield alias
    if dataclasses.is_dataclass(part):
        yield from (field.name for field in dataclasses.fields(part))
