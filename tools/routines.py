"""Reads routines out of rendered SQL: name, parameters, result columns and the header of each.

The header is the block of `--` lines that stands first in a PostgreSQL body and before CREATE in T-SQL:
a line of purpose, free text, then `name: rule` for a parameter and `returns:`, `errors:`, `locks:`, `role:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from pysqlbox.deploy.render import Unit, render_units
from pysqlbox.names import DEFAULT_BOXES, Dialect, NamedBox

FOLDERS = frozenset({"internal", "queue", "outbox", "inbox", "joins", "ledger", "audit", "workers", "admin"})
"""The folders whose every file creates one routine."""
FIELDS = ("returns", "errors", "locks", "role")
_AFTER = re.compile(r"after:\s*[\w.]+(\s*,\s*[\w.]+)*")  # file names, not a parameter
_NONE = "none"
_CREATE = re.compile(
    r"^\s*CREATE\s+(?:OR\s+(?:REPLACE|ALTER)\s+)?(?P<kind>FUNCTION|PROCEDURE)\s+"
    r'(?:(?:"(?:[^"]|"")+"|\[(?:[^]]|\]\])+\])\.)?(?:"(?P<pg>(?:[^"]|"")+)"|\[(?P<ms>(?:[^]]|\]\])+)\])',
    re.IGNORECASE | re.MULTILINE,
)
_FIELD = re.compile(r"(?P<name>[a-z_][a-z0-9_]*):(?:\s+(?P<value>.*))?$")
_BODY = re.compile(r"\bAS\s+\$[a-z_]*\$[^\n]*\n", re.IGNORECASE)
_PROCEDURE_BODY = re.compile(r"^\s*(?:WITH\s+EXECUTE\s+AS\s+\w+\s+)?AS\b", re.IGNORECASE | re.MULTILINE)
_STRING_OR_COMMENT = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_PG_CODE = re.compile(r"'(PB\d{3})'")
_MS_CODE = re.compile(r"\bTHROW\s+51(\d{3})\b", re.IGNORECASE)


class HeaderError(ValueError):
    """A routine's file cannot be read as one."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; an optional one has a default."""

    name: str
    type: str
    optional: bool


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says."""

    purpose: str
    text: tuple[str, ...]
    rules: dict[str, str]
    fields: dict[str, str]

    def names(self, field: str) -> tuple[str, ...]:
        """The names a field lists; what follows a semicolon is a remark."""
        value = self.fields.get(field, "").partition(";")[0].strip()
        return () if value in ("", _NONE) else tuple(name.strip() for name in value.split(","))


@dataclass(frozen=True, slots=True)
class Routine:
    """One function or procedure."""

    path: str
    dialect: Dialect
    name: str
    box: NamedBox | None
    parameters: tuple[Parameter, ...]
    columns: tuple[str, ...] | None
    """Result columns as the signature has them; None where it does not (T-SQL, scalar functions)."""
    header: Header
    codes: frozenset[str]
    """Error codes that the text itself raises, as PB001 and so on."""

    @property
    def internal(self) -> bool:
        """Whether it is for other routines only."""
        return self.name.startswith("_")


def routines(
    dialect: Dialect,
    *,
    schema: str = "infra",
    boxes: Sequence[NamedBox] = DEFAULT_BOXES,
    test_clock: bool = False,
    root: Path | None = None,
) -> Iterator[Routine]:
    """Every routine of a deployment, in deployment order."""
    for unit in render_units(dialect, schema=schema, boxes=boxes, test_clock=test_clock, root=root):
        if unit.folder in FOLDERS:
            routine = read(dialect, unit)
            if routine is not None:
                yield routine


def read(dialect: Dialect, unit: Unit) -> Routine | None:
    """The routine of a rendered file; None for a file that this deployment leaves empty."""
    if not _without_comments(unit.text).strip():
        return None
    found = _CREATE.search(unit.text)
    if found is None:
        raise HeaderError(f"{dialect}/{unit.path}: creates no function or procedure")
    quoted: str = found["pg"] or found["ms"]
    signature, rest = _signature(dialect, found["kind"].upper(), unit.text[found.end() :])
    parameters, columns = _parameters(signature)
    if dialect == "postgres":
        columns = columns or _table_columns(rest)
        body = _BODY.search(rest)
        block = _comment_block(rest[body.end() :]) if body else []
        codes = _PG_CODE.findall(unit.text)
    else:
        columns = ()  # a procedure does not declare its result set
        before = [line.strip() for line in unit.text[: found.start("kind")].rstrip().splitlines()[:-1]]
        block = _comment_block("\n".join(takewhile(lambda line: line.startswith("--"), reversed(before))))[
            ::-1
        ]
        codes = [f"PB{number}" for number in _MS_CODE.findall(unit.text)]
    if not block:
        raise HeaderError(f"{dialect}/{unit.path}: has no header")
    return Routine(
        path=unit.path,
        dialect=dialect,
        name=quoted.replace('""', '"').replace("]]", "]"),
        box=unit.box,
        parameters=parameters,
        columns=columns or None,
        header=_header(block, {parameter.name for parameter in parameters}),
        codes=frozenset(codes),
    )


def _signature(dialect: Dialect, kind: str, text: str) -> tuple[str, str]:
    """The parameter list and what follows it."""
    if dialect == "mssql" and kind == "PROCEDURE":
        masked = _masked(text)
        end = _PROCEDURE_BODY.search(masked)
        if end is None:
            raise HeaderError("a procedure has no AS on a line of its own")
        listed, rest = text[: end.start()].strip(), text[end.start() :]
        bare = _without_comments(listed).strip()
        return (bare[1:-1] if bare.startswith("(") else bare), rest
    opening = text.index("(")
    closing = _closing(_masked(text), opening)
    return _without_comments(text[opening + 1 : closing]), text[closing + 1 :]


def _parameters(signature: str) -> tuple[tuple[Parameter, ...], tuple[str, ...]]:
    """Input parameters, and the names of output ones."""
    inputs: list[Parameter] = []
    outputs: list[str] = []
    for part in _split(signature):
        words = part.split()
        mode = words.pop(0).upper() if words[0].upper() in ("IN", "OUT", "INOUT", "VARIADIC") else "IN"
        name, declared = words[0].lstrip("@").strip('"'), " ".join(words[1:])
        if mode in ("OUT", "INOUT"):
            outputs.append(name)
        elif declared.upper().endswith((" OUT", " OUTPUT")):  # T-SQL's internal ones answer that way
            mode = "OUT"
        if mode == "OUT":
            continue
        declared = re.sub(r"^AS\s+", "", declared, flags=re.IGNORECASE)
        declared = re.sub(r"\s+(?:OUT|OUTPUT|READONLY)$", "", declared, flags=re.IGNORECASE)
        kind, default, _ = _partition_default(declared)
        inputs.append(Parameter(name, kind.lower(), bool(default)))
    return tuple(inputs), tuple(outputs)


def _partition_default(declared: str) -> tuple[str, str, str]:
    found = re.search(r"\s*(?:\bDEFAULT\b|:?=)\s*", declared, re.IGNORECASE)
    if found is None:
        return declared.strip(), "", ""
    return declared[: found.start()].strip(), found.group(), declared[found.end() :]


def _table_columns(rest: str) -> tuple[str, ...]:
    found = re.match(r"\s*RETURNS\s+TABLE\s*\(", rest, re.IGNORECASE)
    if found is None:
        return ()
    listed = rest[found.end() : _closing(_masked(rest), found.end() - 1)]
    return tuple(part.split()[0].strip('"') for part in _split(_without_comments(listed)))


def _comment_block(text: str) -> list[str]:
    """The `--` lines that come first, less the deployment's own `-- after:`."""
    lines: list[str] = []
    for line in text.lstrip("\n").splitlines():
        stripped = line.strip()
        if not stripped and not lines:
            continue
        if not stripped.startswith("--"):
            break
        lines.append(stripped.removeprefix("--").strip())
    return [line for line in lines if not _AFTER.fullmatch(line)]


def _header(block: list[str], parameters: set[str]) -> Header:
    text: list[str] = []
    rules: dict[str, str] = {}
    fields: dict[str, str] = {}
    current: dict[str, str] | None = None
    name = ""
    for line in block[1:]:
        found = _FIELD.match(line)
        if found and (found["name"] in FIELDS or found["name"] in parameters):
            current, name = fields if found["name"] in FIELDS else rules, found["name"]
            if name in current:
                raise HeaderError(f"{block[0]!r}: {name} is told twice")
            current[name] = found["value"] or ""
        elif current is not None:
            current[name] = f"{current[name]} {line}".strip()
        else:
            text.append(line)
    return Header(block[0], tuple(text), rules, fields)


def _masked(text: str) -> str:
    """The text with strings and comments blanked, so that parentheses count and offsets stay."""
    return _STRING_OR_COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def _without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def _closing(masked: str, opening: int) -> int:
    depth = 0
    for position in range(opening, len(masked)):
        depth += {"(": 1, ")": -1}.get(masked[position], 0)
        if depth == 0:
            return position
    raise HeaderError("a parenthesis is not closed")


def _split(signature: str) -> list[str]:
    """The parts between the commas that stand outside any parenthesis or string."""
    masked, parts, depth, start = _masked(signature), [], 0, 0
    for position, character in enumerate(masked):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(signature[start:position])
            start = position + 1
    parts.append(signature[start:])
    return [part.strip() for part in parts if part.strip()]
