"""Boxes, their names, and how each dialect quotes identifiers and literals."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args
from uuid import UUID

from pysqlbox.errors import InvalidArgument

Dialect = Literal["postgres", "mssql"]
Kind = Literal["outbox", "inbox"]
#: What a store is called by whoever has several.
StoreKey = str | UUID | int

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
KINDS: tuple[Kind, ...] = get_args(Kind)

#: PostgreSQL cuts identifiers at 63 bytes; SQL Server allows 128 characters.
IDENTIFIER_LIMIT = {"postgres": 63, "mssql": 128}

#: First words of schema-level routines and tables, so never the name of a box.
RESERVED_BOX_NAMES = frozenset(
    {
        "admin",
        "audit",
        "box",
        "internal",
        "join",
        "joins",
        "ledger",
        "lock",
        "roles",
        "schema",
        "unit",
        "version",
        "worker",
        "workers",
        "yoyo",
    }
)

_BOX_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")


@dataclass(frozen=True, slots=True, order=True)
class NamedBox:
    """One queue with its own tables and routines."""

    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.name}:{self.kind}"


DEFAULT_BOXES: tuple[NamedBox, ...] = (NamedBox("outbox", "outbox"), NamedBox("inbox", "inbox"))


def parse_box(text: str) -> NamedBox:
    """Read a box written as ``name:kind``."""
    name, colon, kind = text.partition(":")
    if not colon or kind not in KINDS:
        raise InvalidArgument(f"box {text!r}: must be written name:outbox or name:inbox")
    if not _BOX_NAME.fullmatch(name):
        raise InvalidArgument(
            f"box {name!r}: its name must start with a letter and have up to 30 of a-z, 0-9 and underscore"
        )
    if name in RESERVED_BOX_NAMES:
        raise InvalidArgument(f"box {name!r}: the name is reserved; take another")
    if name in KINDS and name != kind:
        raise InvalidArgument(f"box {name!r}: the default box of that name is an {name}; take another name")
    return NamedBox(name, kind)


def merge_boxes(*groups: Iterable[NamedBox]) -> tuple[NamedBox, ...]:
    """The default boxes and all given ones, each once; the same name with two kinds is refused."""
    merged = {box.name: box for box in DEFAULT_BOXES}
    for group in groups:
        for box in group:
            known = merged.setdefault(box.name, box)
            if known.kind != box.kind:
                raise InvalidArgument(
                    f"box {box.name!r}: is an {known.kind} already, it cannot become an {box.kind};"
                    " name another box"
                )
    named = sorted(box for name, box in merged.items() if name not in KINDS)
    return (*DEFAULT_BOXES, *named)


def check_schema_name(dialect: Dialect, schema: str) -> str:
    """Return ``schema`` if the dialect can take it as an identifier."""
    size = len(schema.encode()) if dialect == "postgres" else len(schema)
    if not schema or "\x00" in schema or size > IDENTIFIER_LIMIT[dialect]:
        limit = IDENTIFIER_LIMIT[dialect]
        raise InvalidArgument(f"schema {schema!r}: must have 1 to {limit} characters and no NUL")
    if "$$" in schema:
        raise InvalidArgument(f"schema {schema!r}: must not hold $$, which ends a routine's text")
    return schema


def check_box_names(dialect: Dialect, schema: str, boxes: Iterable[NamedBox]) -> None:
    """Refuse boxes for which the schema's name is too long: PostgreSQL notifies by both names."""
    if dialect != "postgres":
        return
    for box in boxes:
        if len(f"{schema}.{box.name}".encode()) > IDENTIFIER_LIMIT[dialect]:
            raise InvalidArgument(
                f"schema {schema!r}: with box {box.name!r} it makes a channel for notifications of more than"
                f" {IDENTIFIER_LIMIT[dialect]} bytes; give one of them a shorter name"
            )


def check_role_names(dialect: Dialect, schema: str) -> None:
    """Refuse a schema whose roles would have names that are too long."""
    longest = f"{schema}_producer"
    size = len(longest.encode()) if dialect == "postgres" else len(longest)
    if size > IDENTIFIER_LIMIT[dialect]:
        raise InvalidArgument(
            f"schema {schema!r}: too long for roles of its name, as {longest!r}; give it a shorter one"
        )


def quote_identifier(dialect: Dialect, name: str) -> str:
    """Quote one identifier, whatever characters it holds."""
    if not name or "\x00" in name:
        raise InvalidArgument(f"identifier {name!r}: must not be empty or hold a NUL")
    if dialect == "postgres":
        return '"' + name.replace('"', '""') + '"'
    return "[" + name.replace("]", "]]") + "]"


def quote_literal(dialect: Dialect, text: str) -> str:
    """Quote a string as a literal, whatever characters it holds."""
    if "\x00" in text:
        raise InvalidArgument("literal: must not hold a NUL")
    doubled = text.replace("'", "''")
    if dialect == "mssql":
        return f"N'{doubled}'"
    if "\\" in text:
        doubled = doubled.replace("\\", "\\\\")
        return f" E'{doubled}'"
    return f"'{doubled}'"
