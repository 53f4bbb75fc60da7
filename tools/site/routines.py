"""The reference of routines, from their headers: both dialects side by side."""

from __future__ import annotations

from collections.abc import Iterator

from pysqlbox.names import NamedBox
from tools.routines import Routine, routines

_BOX = NamedBox("box", "outbox")
_INBOX = NamedBox("box", "inbox")
_CHAPTERS = {
    "outbox": "Sending: outboxes",
    "inbox": "Sending: inboxes",
    "queue": "Every box",
    "joins": "Joins",
    "ledger": "The ledger",
    "admin": "The deployment",
    "audit": "The audit log",
    "workers": "The register of workers",
}


def pages() -> dict[str, str]:
    """One page, with a chapter for each folder of sql/."""
    return {"routines.md": "\n".join(_page())}


def _page() -> Iterator[str]:
    yield "# Routines\n"
    yield (
        "Every routine that programs may call, as its file tells it; `<box>` is a box's name: `outbox`, "
        "`inbox`, or the name that it was deployed under. They are in the deployment's schema (`infra`). In "
        "PostgreSQL they are functions, `SELECT * FROM infra.outbox_claim(…)`; in SQL Server procedures, "
        "`EXEC infra.outbox_claim …`, whose parameters have an `@` and whose sets are JSON.\n"
    )
    yield _codes()
    told = {dialect: _public(dialect) for dialect in ("postgres", "mssql")}
    for folder, title in _CHAPTERS.items():
        yield f"\n## {title}\n"
        for name, routine in sorted(told["postgres"].items()):
            if routine.path.split("/")[0] == folder:
                yield from _entry(name, routine, told["mssql"][name])


def _public(dialect: str) -> dict[str, Routine]:
    """The routines by name; what both kinds of boxes have in common is told once."""
    found: dict[str, Routine] = {}
    for box in (_BOX, _INBOX):
        for routine in routines("postgres" if dialect == "postgres" else "mssql", boxes=[box]):
            if not routine.internal and routine.header.names("role") != ("internal",):
                found.setdefault(_title(routine), routine)
    return found


def _title(routine: Routine) -> str:
    """A box's routines under a placeholder; those of joins, the ledger and the schema under their own."""
    if routine.box is None:
        return routine.name
    rest = routine.name.removeprefix("box_")
    folder = routine.path.split("/")[0]
    return f"<{folder if folder in ('outbox', 'inbox') else 'box'}>_{rest}"


def _entry(name: str, routine: Routine, twin: Routine) -> Iterator[str]:
    header = routine.header
    yield f"\n### {name.replace('<', '&lt;').replace('>', '&gt;')} {{ #{_anchor(name)} }}\n"
    yield _text(header.purpose)
    if header.text:
        yield "\n" + _text("\n".join(header.text))
    types = {parameter.name: parameter.type for parameter in twin.parameters}
    if routine.parameters:
        yield "\n| argument | PostgreSQL | SQL Server | |\n| --- | --- | --- | --- |"
        for parameter in routine.parameters:
            rule = header.rules.get(parameter.name, "")
            optional = "" if not parameter.optional else " *(optional)*"
            cells = (parameter.type, types.get(parameter.name, "none"), rule)
            yield f"| `{parameter.name}`{optional} | " + " | ".join(_cell(cell) for cell in cells) + " |"
    words = {"answers": "returns", "errors": "errors", "may be called by": "role"}
    yield (
        "\n" + " · ".join(f"*{word}*: {_cell(header.fields[field])}" for word, field in words.items()) + "\n"
    )


def _codes() -> str:
    return """\
| what is wrong | PostgreSQL's SQLSTATE | SQL Server's number | in Python |
| --- | --- | --- | --- |
| an argument | PB001 | 51001 | `InvalidArgument` |
| no such thing | PB002 | 51002 | `NotFound` |
| not in this state | PB003 | 51003 | `InvalidState` |
"""


def _anchor(name: str) -> str:
    return name.replace("<", "").replace(">", "")


def _text(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|") or " "
