"""JSON Schema: what of it the service's requests need, checked; and that of the answers, from their types.

A request is checked against the very schema that ``/openapi.json`` shows, so the two cannot differ.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

from pysqlbox.errors import InvalidArgument

__all__ = ["Schema", "check", "from_text", "null_or", "of_type"]

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_ARTICLES = {"array": "an array", "object": "an object", "integer": "a whole number", "null": "null"}


def null_or(schema: Schema) -> dict[str, Any]:
    """The same, or null."""
    made = {**schema, "type": [schema["type"], "null"]}
    return made | {"enum": [*schema["enum"], None]} if "enum" in schema else made


def check(name: str, value: object, schema: Schema) -> None:
    """Refuse a value that a schema does not allow."""
    if "anyOf" in schema:
        _check_any(name, value, schema["anyOf"])
        return
    if "type" in schema:
        allowed = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_is(value, each) for each in allowed):
            kinds = " or ".join(_ARTICLES.get(each, f"a {each}") for each in allowed)
            raise InvalidArgument(f"{name or 'body'}: must be {kinds}")
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidArgument(f"{name}: must be one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, str):
        _check_text(name, value, schema)
    elif isinstance(value, list):
        _check_size(name, len(value), schema, "minItems", "maxItems", "elements")
        for number, each in enumerate(value, 1):
            check(f"{name} {number}" if name else str(number), each, schema.get("items", {}))
    elif isinstance(value, dict):
        _check_object(name, value, schema)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(name, value, schema)


def _is(value: object, kind: str) -> bool:
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    return kind != "integer" or isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _check_any(name: str, value: object, choices: list[Schema]) -> None:
    """One fits; else what the one says that comes nearest: of the value's type, with most of its keys."""
    nearest: tuple[int, InvalidArgument] | None = None
    for choice in choices:
        try:
            check(name, value, choice)
        except InvalidArgument as error:
            score = 0
            if _is(value, choice.get("type", "null")):
                score = 1 + (
                    len(value.keys() & choice.get("properties", {})) if isinstance(value, dict) else 0
                )
            if nearest is None or score >= nearest[0]:
                nearest = score, error
        else:
            return
    if nearest is not None:
        raise nearest[1]


def _check_text(name: str, value: str, schema: Schema) -> None:
    pattern = schema.get("pattern")
    if pattern is not None and not re.search(pattern.replace("$", r"\Z"), value):
        raise InvalidArgument(f"{name}: must match {pattern}")
    _check_size(name, len(value), schema, "minLength", "maxLength", "characters")
    kind = schema.get("format")
    if kind == "uuid":
        try:
            UUID(value)
        except ValueError:
            raise InvalidArgument(f"{name}: must be a uuid") from None
    elif kind == "date-time":
        moment(name, value)


def moment(name: str, value: str) -> datetime:
    """The time that a text means; one without an offset is refused."""
    found: datetime | None = None
    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(value)
    if found is None or found.tzinfo is None or "T" not in value.upper():
        raise InvalidArgument(f"{name}: must be a time with an offset, such as 2026-01-31T12:00:00Z")
    return found


def _check_size(name: str, size: int, schema: Schema, least: str, most: str, what: str) -> None:
    if size < schema.get(least, 0) or size > schema.get(most, math.inf):
        raise InvalidArgument(f"{name}: must have {_range(schema.get(least), schema.get(most))} {what}")


def _range(low: object, high: object) -> str:
    if low is None or high is None:
        return f"at most {high}" if low is None else f"at least {low}"
    return f"from {low} to {high}"


def _check_number(name: str, value: float, schema: Schema) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum")
    if above is not None and value <= above:
        raise InvalidArgument(f"{name}: must be above {above}")
    if (low is not None and value < low) or (high is not None and value > high):
        raise InvalidArgument(f"{name}: must be {_range(low, high)}")


def _check_object(name: str, value: dict[str, object], schema: Schema) -> None:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    for wanted in schema.get("required", ()):
        if wanted not in value:
            raise InvalidArgument(f"{_within(name, wanted)}: is missing, and must be given")
    for key, each in value.items():
        if key in properties:
            check(_within(name, key), each, properties[key])
        elif schema.get("additionalProperties") is False:
            known = ", ".join(properties)
            raise InvalidArgument(f"{_within(name, ascii(key))}: must be one of {known}")


def _within(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def from_text(name: str, text: str, schema: Schema) -> Any:
    """A query parameter as what its schema says it is, checked."""
    value: object = text
    if schema.get("type") == "integer":
        value = _number(name, text)
    elif schema.get("type") == "boolean":
        if text not in ("true", "false"):
            raise InvalidArgument(f"{name}: must be true or false")
        value = text == "true"
    check(name, value, schema)
    return value


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20):
        raise InvalidArgument(f"{name}: must be a whole number")
    return int(text)


_PLAIN: dict[object, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "description": "hex digits"},
    UUID: {"type": "string", "format": "uuid"},
    datetime: {"type": "string", "format": "date-time"},
    type(None): {"type": "null"},
}


def of_type(annotation: Any, *, names: typing.Callable[[str], str] = str) -> dict[str, Any]:
    """The schema of what an answer's type becomes in JSON; ``names`` renames a dataclass's fields."""
    if annotation in _PLAIN:
        return dict(_PLAIN[annotation])
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        hints = typing.get_type_hints(annotation)
        properties = {
            names(field.name): of_type(hints[field.name], names=names)
            for field in dataclasses.fields(annotation)
        }
        return {"type": "object", "properties": properties, "required": list(properties)}
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        choices = [of_type(each, names=names) for each in arguments]
        if len(choices) == 2 and choices[1] == {"type": "null"} and isinstance(choices[0].get("type"), str):
            return null_or(choices[0])
        return {"anyOf": choices}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": of_type(arguments[0], names=names)}
    if origin is dict:
        return {"type": "object"}
    if origin is typing.Literal:
        return {"type": "string", "enum": list(arguments)}
    raise TypeError(f"no schema for {annotation!r}")
