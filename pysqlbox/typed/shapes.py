"""Converters from what ``json.loads`` answers to Python types, built once per type.

JSON says less than Python: times, UUIDs and Decimals come as the text that the JSON serializer writes, a
Decimal also as a number. Beyond that nothing is converted: a number is no text, ``true`` is no number. Keys
that a dataclass does not know are passed over, so that a producer may add a field before its consumers do.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin
from uuid import UUID

from pysqlbox.errors import InvalidArgument

__all__ = ["Convert", "Misfit", "Shapes", "describe", "members", "strip"]

Convert = Callable[[Any], Any]

_LISTS = (list, Sequence, MutableSequence, Iterable)
_SETS = (set, frozenset, AbstractSet)
_MAPPINGS = (dict, Mapping, MutableMapping)


class Misfit(Exception):
    """A value does not fit; knows where it is, but not the value."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected
        self.path: list[str] = []

    def within(self, step: str) -> Misfit:
        """The same, seen from one level further out."""
        self.path.insert(0, step)
        return self

    def __str__(self) -> str:
        where = "".join(self.path).lstrip(".")
        return f"{where}: {self.expected}" if where else self.expected


def strip(kind: Any) -> Any:
    """A type without what only names or annotates it: Annotated, NewType, aliases, the bound of a TypeVar."""
    while True:
        if get_origin(kind) is typing.Annotated:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        elif isinstance(kind, TypeVar):
            kind = kind.__bound__ or Any
        elif type(kind).__name__ == "TypeAliasType":  # the type statement, from 3.12 on
            kind = kind.__value__
        else:
            return kind


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type alone."""
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(inner for member in get_args(kind) for inner in members(strip(member)))
    return (kind,)


def describe(kind: Any) -> str:
    """A type as a person would write it."""
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)


class Shapes:
    """Builds converters; one instance per annotation, since what one finds decides how the JSON is read."""

    def __init__(self, local_names: Mapping[str, Any] | None = None) -> None:
        self.exact = False
        """Whether a Decimal is in it, so that numbers must be read without going through a float."""
        self._local_names = dict(local_names or {})
        self._known: dict[Any, Convert] = {}

    def build(self, kind: Any) -> Convert:
        """The converter of a type; raises InvalidArgument for one that JSON cannot fill."""
        kind = strip(kind)
        if kind is Any or kind is object:
            return self._anything
        if len(members(kind)) > 1:
            return self._union(kind)
        simple = self._simple(kind)
        return simple if simple is not None else self._container(kind)

    def _simple(self, kind: Any) -> Convert | None:
        if kind is None or kind is types.NoneType:
            return _null
        if get_origin(kind) is Literal:
            return _literal(get_args(kind))
        if not isinstance(kind, type) or get_args(kind):
            return None
        if issubclass(kind, Enum):
            return _enum(kind)
        if kind is Decimal:
            self.exact = True
        return _SCALARS.get(kind)

    def _container(self, kind: Any) -> Convert:
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        if origin in _LISTS:
            return self._items(arguments, list)
        if origin in _SETS:
            return self._items(arguments, set if origin is set else frozenset)
        if origin is tuple:
            if not arguments or arguments[-1] is Ellipsis:
                return self._items(arguments, tuple)
            return self._fixed(arguments)
        if origin in _MAPPINGS:
            return self._mapping(arguments or (str, Any))
        if isinstance(origin, type) and dataclasses.is_dataclass(origin):
            return self._record(kind, origin)
        if typing.is_typeddict(origin):
            return self._record(kind, origin)
        raise InvalidArgument(f"a payload's type must be made of what JSON has, and {describe(kind)} is not")

    def _anything(self, value: Any) -> Any:
        return _without_decimals(value) if self.exact else value

    def _union(self, kind: Any) -> Convert:
        options = [self.build(member) for member in members(kind)]
        names = [describe(member) for member in members(kind)]
        if len(options) == 2 and _null in options:
            inner = next(option for option in options if option is not _null)
            return lambda value: None if value is None else inner(value)

        def convert(value: Any) -> Any:
            for option in options:
                try:
                    return option(value)
                except Misfit:
                    continue
            raise Misfit(f"must be one of {', '.join(names)}")

        return convert

    def _items(self, arguments: tuple[Any, ...], make: Callable[[list[Any]], Any]) -> Convert:
        item = self.build(arguments[0] if arguments else Any)

        def convert(value: Any) -> Any:
            if not isinstance(value, list):
                raise Misfit("must be a list")
            found = []
            for number, element in enumerate(value):
                try:
                    found.append(item(element))
                except Misfit as misfit:
                    raise misfit.within(f"[{number}]") from None
            try:
                return found if make is list else make(found)
            except TypeError:
                raise Misfit("must hold what a set can hold") from None

        return convert

    def _fixed(self, arguments: tuple[Any, ...]) -> Convert:
        items = [self.build(argument) for argument in arguments]

        def convert(value: Any) -> Any:
            if not isinstance(value, list) or len(value) != len(items):
                raise Misfit(f"must be a list of {len(items)}")
            found = []
            for number, (item, element) in enumerate(zip(items, value, strict=True)):
                try:
                    found.append(item(element))
                except Misfit as misfit:
                    raise misfit.within(f"[{number}]") from None
            return tuple(found)

        return convert

    def _mapping(self, arguments: tuple[Any, ...]) -> Convert:
        name, item = self._key(arguments[0]), self.build(arguments[1])

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise Misfit("must be an object")
            found = {}
            for key, element in value.items():
                try:
                    found[name(key)] = item(element)
                except Misfit as misfit:
                    raise misfit.within("[…]") from None  # the key is the payload's, not ours to show
            return found

        return convert

    def _key(self, kind: Any) -> Convert:
        """JSON's keys are text, so a key's numbers come as text too."""
        kind = strip(kind)
        if kind is int:
            return _int_key
        if isinstance(kind, type) and issubclass(kind, int) and issubclass(kind, Enum):
            member = _enum(kind)
            return lambda key: member(_int_key(key))
        if kind in (float, bool, None) or len(members(kind)) > 1:
            raise InvalidArgument(
                f"a payload's dict must have keys that JSON has, and {describe(kind)} are none"
            )
        return self.build(kind)

    def _record(self, kind: Any, origin: Any) -> Convert:
        """A dataclass or TypedDict, which may hold itself."""
        if kind in self._known:
            return lambda value: self._known[kind](value)
        self._known[kind] = _null
        fields, required = self._fields(origin, kind)
        converters = [(name, self.build(field), name in required) for name, field in fields.items()]
        make = dict if typing.is_typeddict(origin) else origin
        title = describe(origin)

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise Misfit("must be an object")
            found = {}
            for name, field, needed in converters:
                if name in value:
                    try:
                        found[name] = field(value[name])
                    except Misfit as misfit:
                        raise misfit.within(f".{name}") from None
                elif needed:
                    raise Misfit("is missing").within(f".{name}")
            try:
                return make(**found)
            except (TypeError, ValueError, ArithmeticError, LookupError) as error:
                raise Misfit(f"{title} refused its fields ({type(error).__name__})") from None

        self._known[kind] = convert
        return convert

    def _fields(self, origin: Any, kind: Any) -> tuple[dict[str, Any], set[str]]:
        """The fields that JSON may fill, with their types, and those that it must."""
        try:
            hints = typing.get_type_hints(origin, localns=self._local_names, include_extras=True)
        except NameError as error:
            raise InvalidArgument(
                f"{describe(origin)}: nothing is known by the name {error.name}; import it where the class is"
            ) from error
        parameters = getattr(origin, "__parameters__", ())
        if arguments := get_args(kind):
            given = dict(zip(parameters, arguments, strict=True))
            hints = {name: _fill_in(hint, given) for name, hint in hints.items()}
        if typing.is_typeddict(origin):
            marks = {
                name: get_origin(hint) for name, hint in hints.items()
            }  # postponed, the class missed them
            needed = {name for name in origin.__required_keys__ if marks[name] is not typing.NotRequired}
            needed |= {name for name, mark in marks.items() if mark is typing.Required}
            return {name: _unwrap(hint) for name, hint in hints.items()}, needed
        fields = [field for field in dataclasses.fields(origin) if field.init]
        needed = {f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING}
        return {field.name: hints[field.name] for field in fields}, needed


def _fill_in(hint: Any, given: Mapping[Any, Any]) -> Any:
    """A generic class's field type with the class's arguments put in."""
    if isinstance(hint, TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(parameter, parameter) for parameter in parameters)] if parameters else hint


def _unwrap(hint: Any) -> Any:
    """A TypedDict's field type without Required and NotRequired."""
    return get_args(hint)[0] if get_origin(hint) in (typing.Required, typing.NotRequired) else hint


def _null(value: Any) -> None:
    if value is not None:
        raise Misfit("must be null")


def _exactly(kind: type, expected: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise Misfit(expected)
        return value

    return convert


def _float(value: Any) -> float:
    if type(value) not in (int, float, Decimal):
        raise Misfit("must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Misfit("must be a number that fits a float")
    return number


def _decimal(value: Any) -> Decimal:
    if type(value) not in (int, str, Decimal):
        raise Misfit("must be a decimal number")
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise Misfit("must be a decimal number") from None
    if not number.is_finite():
        raise Misfit("must be a decimal number")
    return number


def _parsed(parse: Callable[[str], Any], expected: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not str:
            raise Misfit(expected)
        try:
            return parse(value)
        except ValueError:
            raise Misfit(expected) from None

    return convert


def _int_key(key: str) -> int:
    try:
        if re.fullmatch(r"-?[0-9]+", key):
            return int(key)
    except ValueError:  # more digits than Python reads
        pass
    raise Misfit("must be a whole number")


def _enum(kind: type[Enum]) -> Convert:
    """By value, told apart by JSON's types: ``true`` is not 1."""
    plain = {(type(member.value), member.value): member for member in kind if _is_plain(member.value)}
    texts = {str(member.value): member for member in kind if not _is_plain(member.value)}

    def convert(value: Any) -> Any:
        number = float(value) if isinstance(value, Decimal) else value
        member = plain.get((type(number), number)) if _is_plain(number) else None
        if member is None and isinstance(value, str):
            member = texts.get(value)
        if member is None:
            raise Misfit(f"must be one of {kind.__qualname__}'s values")
        return member

    return convert


def _literal(values: tuple[Any, ...]) -> Convert:
    plain = {(type(value), value): value for value in values if _is_plain(value)}
    plain |= {(type(value.value), value.value): value for value in values if isinstance(value, Enum)}

    def convert(value: Any) -> Any:
        if not _is_plain(value) or (type(value), value) not in plain:
            raise Misfit("must be one of the literal values")
        return plain[type(value), value]

    return convert


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (str, int, float, bool)


def _without_decimals(value: Any) -> Any:
    if type(value) is Decimal:
        return float(value)
    if type(value) is list:
        return [_without_decimals(item) for item in value]
    if type(value) is dict:
        return {key: _without_decimals(item) for key, item in value.items()}
    return value


_SCALARS: dict[type, Convert] = {
    str: _exactly(str, "must be text"),
    bool: _exactly(bool, "must be true or false"),
    int: _exactly(int, "must be a whole number"),
    float: _float,
    Decimal: _decimal,
    datetime: _parsed(datetime.fromisoformat, "must be an ISO 8601 time"),
    date: _parsed(date.fromisoformat, "must be an ISO 8601 date"),
    time: _parsed(time.fromisoformat, "must be an ISO 8601 time of day"),
    UUID: _parsed(UUID, "must be a UUID"),
}
