"""What the commands print: tables for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import click

__all__ = ["age", "echo_json", "fields_of", "moment", "one_line", "printable", "table"]


def fields_of(value: Any, *, without: Collection[str] = ()) -> dict[str, Any]:
    """A dataclass as a dict, in the order of its fields."""
    names = (field.name for field in dataclasses.fields(value))
    return {name: getattr(value, name) for name in names if name not in without}


def echo_json(value: object) -> None:
    """JSON on one line, in plain ASCII, so that no terminal takes anything in it for a command."""
    click.echo(json.dumps(value, default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    raise TypeError(type(value).__name__)


def printable(text: str, *, lines: bool = False) -> str:
    """Text whose control characters are written out, since messages come from anywhere."""
    return "".join(
        character
        if character.isprintable() or (lines and character in "\n\t")
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def one_line(text: str | None, width: int) -> str:
    """The beginning of a text, on one line."""
    line = printable(" ".join((text or "").split()))
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


def moment(value: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}"


def age(seconds: float | None) -> str:
    """A length of time as a person says it."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[str] = ()) -> str:
    """Aligned columns; those named in ``right`` to the right. The last is cut at the terminal's edge."""
    cells = [[*map(_cell, row[:-1]), _cell(row[-1], 10**6)] for row in rows]
    widths = [max([len(title), *(len(row[n]) for row in cells)]) for n, title in enumerate(titles)]
    if titles[-1] not in right:
        room = shutil.get_terminal_size((120, 24)).columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
        for row in cells:
            row[-1] = one_line(row[-1], max(room, 20))
    return "\n".join(
        "  ".join(
            text.rjust(width) if title in right else text.ljust(width)
            for title, text, width in zip(titles, row, widths, strict=True)
        ).rstrip()
        for row in [list(titles), *cells]
    )


def _cell(value: object, width: int | None = None) -> str:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = "" if value is None else str(value)
    return printable(text) if width is None else one_line(text, width)
