"""What a rendered PostgreSQL text creates: routines with the types of their arguments, and views.

A routine is known by its name *and* its argument types: of the same name there may be one that somebody
else made in the schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pysqlbox.deploy.render import BOX, Unit

#: The one path that a definer's routine may have: nobody but the server's owner writes to it.
PINNED_PATH = "pg_catalog, pg_temp"

_TOKEN = re.compile(
    r"""
    (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<space>\s+)
    | (?P<body>\$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$)
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | [A-Za-z_][\w$]*
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
_MODES = frozenset({"IN", "OUT", "INOUT", "VARIADIC"})


@dataclass(frozen=True, slots=True)
class Declaration:
    """One routine or view that a text creates."""

    kind: Literal["routine", "view"]
    #: Schema and name, quoted; a routine's argument types behind it, as ``regprocedure`` reads them.
    target: str
    #: Whether it asks for its owner's rights, or will get them by the roles.
    definer: bool = False
    #: Whether it sets its search_path to PINNED_PATH.
    pinned: bool = False


def declarations(unit: Unit) -> list[Declaration]:
    """Everything a unit creates that a later deployment may create anew."""
    if unit.kind == "versioned" or unit.folder == "roles":
        return []
    found = _read(unit.pattern)
    if unit.box is None:
        return list(found)
    name = unit.box.name
    return [
        Declaration(each.kind, each.target.replace(BOX, name), each.definer, each.pinned) for each in found
    ]


def unpinned_definers(units: Sequence[Unit], *, roles: bool) -> list[str]:
    """The units that would run with their owner's rights under their caller's search_path."""
    return [
        unit.id
        for unit in units
        for each in declarations(unit)
        if each.kind == "routine"
        and not each.pinned
        and (each.definer or (roles and unit.role != "internal"))
    ]


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[Declaration, ...]:
    return tuple(_statements(_tokens(text)))


def _tokens(text: str) -> list[str]:
    """The words of a text, without blanks, comments and bodies."""
    return [
        match[0]
        for match in _TOKEN.finditer(text)
        if not match["space"] and not match["comment"] and not match["body"]
    ]


def _statements(tokens: list[str]) -> Iterator[Declaration]:
    start = 0
    for position, token in enumerate([*tokens, ";"]):
        if token == ";":
            made = _statement(tokens[start:position])
            if made is not None:
                yield made
            start = position + 1


def _statement(tokens: list[str]) -> Declaration | None:
    words = [token.upper() for token in tokens]
    if words[:1] != ["CREATE"]:
        return None
    at = 3 if words[1:3] == ["OR", "REPLACE"] else 1
    if words[at : at + 1] == ["VIEW"]:
        return Declaration("view", "".join(tokens[at + 1 : at + 4]))
    if words[at : at + 1] not in (["FUNCTION"], ["PROCEDURE"]):
        return None
    name = "".join(tokens[at + 1 : at + 4])  # schema, dot, name: the templates write both
    opening = at + 4
    closing = _closing(tokens, opening)
    types = [_type(each) for each in _parts(tokens[opening + 1 : closing])]
    rest = " ".join(words[closing + 1 :])
    return Declaration(
        "routine",
        f"{name}({', '.join(each for each in types if each)})",
        definer="SECURITY DEFINER" in rest,
        pinned=re.search(r"\bSET SEARCH_PATH (=|TO) PG_CATALOG , PG_TEMP\b", rest) is not None,
    )


def _closing(tokens: list[str], opening: int) -> int:
    depth = 0
    for position in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[position], 0)
        if depth == 0:
            return position
    raise ValueError("a parameter list is not closed")


def _parts(tokens: list[str]) -> Iterator[list[str]]:
    """The parameters of a list, each as its words."""
    part: list[str] = []
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token == "," and depth == 0:
            yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _type(words: list[str]) -> str:
    """The type of one parameter, without its name and default; nothing for one that only goes out."""
    mode = words[0].upper() if words[0].upper() in _MODES and len(words) > 2 else ""
    if mode == "OUT":
        return ""
    kept: list[str] = []
    for word in words[2 if mode else 1 :]:
        if word.upper() == "DEFAULT" or word == "=":
            break
        kept.append(word)
    return re.sub(r" ?([.\[\](]) ?", r"\1", " ".join(kept)).replace(" )", ")")
