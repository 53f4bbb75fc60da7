"""Templates to SQL: one file, or every unit of a deployment in its order.

A template is ``sql/<dialect>/<folder>/<name>.sql``. Its folder decides whether it is rendered once per
schema or once per box; its name decides the name of the routine it creates. Passages that several templates
share are macros in ``sql/<dialect>/macros/<name>.sql``:
``{% import "macros/<name>.sql" as <name> with context %}``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pysqlbox.deploy.babelfish import json_long_text, json_text
from pysqlbox.deploy.message_ids import drawn_id, drawn_message_id, message_id_stem
from pysqlbox.errors import InvalidArgument
from pysqlbox.extras import needed_for
from pysqlbox.names import (
    DEFAULT_BOXES,
    IDENTIFIER_LIMIT,
    Dialect,
    NamedBox,
    check_schema_name,
    quote_identifier,
    quote_literal,
)
from pysqlbox.paths import sql_root

with needed_for("rendering and deploying the SQL", "deploy"):
    import jinja2

UnitKind = Literal["versioned", "repeatable"]
Scope = Literal["schema", "queue", "outbox", "inbox"]

#: Every folder in deployment order, and what it is rendered for.
FOLDERS: dict[str, Scope] = {
    "tables/schema": "schema",
    "tables/queue": "queue",
    "tables/outbox": "outbox",
    "tables/inbox": "inbox",
    "tables/joins": "schema",
    "tables/ledger": "schema",
    "tables/audit": "schema",
    "tables/workers": "schema",
    "internal": "schema",
    "views/schema": "schema",
    "views/audit": "schema",
    "views/queue": "queue",
    "views/outbox": "outbox",
    "views/inbox": "inbox",
    "queue": "queue",
    "outbox": "outbox",
    "inbox": "inbox",
    "joins": "schema",
    "ledger": "schema",
    "audit": "schema",
    "workers": "schema",
    "admin": "schema",
    "roles": "schema",
}

#: What a schema-level routine's name begins with, by folder.
_PREFIXES = {"joins": "join_", "ledger": "ledger_", "audit": "audit_", "workers": "worker_", "internal": "_"}

_GO = re.compile(r"^[ \t]*GO[ \t]*$", re.IGNORECASE | re.MULTILINE)
# File names only: a header may have a rule of a parameter called after.
_AFTER = re.compile(r"--\s*after:\s*(?P<names>[\w.]+(?:\s*,\s*[\w.]+)*)\s*$")
_VERSION = re.compile(r"(?P<version>\d{4})_")
_TAG_OPEN = re.compile(r"\{[{%#]")
_TAG_CLOSE = {"{{": "}}", "{%": "%}", "{#": "#}"}
_MARK = "\ufdd0"  # a Unicode non-character: never part of a template
_ROLE = re.compile(r"^\s*-- role: (?P<roles>[a-z]+(?:, [a-z]+)*)\s*$", re.MULTILINE)

#: Stands for the name of a named box in a text that is rendered once for all of them: a non-character, which
#: no quoting changes. A template may ask whether its box is a default one, and nothing else of the name.
BOX = "\ufdd1"


class _Plain(str):
    """A name that must pass through a quoting filter before it reaches the output."""


class _Names:
    """``db.x``, ``box.x``, ``key.x``: quoted names, each remembered."""

    def __init__(self, dialect: Dialect, schema: str | None, pattern: str, seen: set[str]) -> None:
        self._dialect: Dialect = dialect
        self._schema = schema
        self._pattern = pattern
        self._seen = seen

    def __getattr__(self, attribute: str) -> str:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        name = self._full(attribute)
        _check_length(self._dialect, name)
        self._seen.add(name)
        quoted = quote_identifier(self._dialect, name)
        if self._schema is None:
            return quoted
        return f"{quote_identifier(self._dialect, self._schema)}.{quoted}"

    def _full(self, attribute: str) -> str:
        return object_name(attribute, self._pattern)


class _Keys(_Names):
    """Constraint and index names: the box goes after the first word."""

    def _full(self, attribute: str) -> str:
        first, _, rest = attribute.partition("_")
        return f"{first}_{self._pattern}{rest}"


class _NoBox:
    """Stands for ``box`` in a schema-level template, where there is none."""

    def __getattr__(self, attribute: str) -> str:
        raise jinja2.UndefinedError(
            f"box.{attribute}: this folder is rendered once per schema, without a box"
        )


def _check_length(dialect: Dialect, name: str) -> None:
    if len(name) > IDENTIFIER_LIMIT[dialect]:
        raise InvalidArgument(
            f"identifier {name!r}: must have at most {IDENTIFIER_LIMIT[dialect]} characters;"
            " give the schema or the box a shorter name"
        )


def object_name(name: str, prefix: str) -> str:
    """Put the prefix before a name, behind the underscore of an internal one."""
    return f"_{prefix}{name[1:]}" if name.startswith("_") else f"{prefix}{name}"


@dataclass(frozen=True, slots=True)
class Unit:
    """One rendered file of a deployment."""

    id: str
    folder: str
    path: str
    box: NamedBox | None
    kind: UnitKind
    version: int
    object_name: str
    dialect: Dialect
    #: The text, with BOX in place of a named box's name.
    pattern: str
    #: SHA-256 of the pattern, as bytes.
    digest: bytes
    #: Who may call the routine, as its header says; internal for what has none.
    role: str
    #: Rendered line by line: the template's line of each line of the text.
    lines: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """What is sent to the database."""
        return self.pattern.replace(BOX, self.box.name) if self.box else self.pattern

    @property
    def batches(self) -> tuple[str, ...]:
        """The text in the parts that are sent as one."""
        return split_batches(self.dialect, self.text)

    @property
    def hash(self) -> str:
        """SHA-256 of the text, as hex; it is told by the pattern and the name that is put into it."""
        name = self.box.name if self.box else ""
        return hashlib.sha256(self.digest + name.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A template rendered for one box, or for every named box of a kind."""

    text: str
    digest: bytes
    is_empty: bool
    lines: tuple[int, ...]


class Renderer:
    """Renders the templates of one dialect for one schema and its boxes."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        schema: str = "infra",
        boxes: Sequence[NamedBox] = DEFAULT_BOXES,
        root: Path | None = None,
        preserve_lines: bool = False,
        test_clock: bool = False,
    ) -> None:
        self.dialect: Dialect = dialect
        self.schema = check_schema_name(dialect, schema)
        self.boxes = tuple(boxes)
        self.root = (root or sql_root()) / dialect
        self.preserve_lines = preserve_lines
        self.test_clock = test_clock
        self._templates: dict[str, jinja2.Template] = {}
        self._lines: dict[tuple[str, NamedBox | None], tuple[int, ...]] = {}
        self._patterns: dict[tuple[str, NamedBox | None], _Pattern] = {}
        self._sources: dict[str, str] = {}
        self._seen: dict[NamedBox | None, set[str]] = {}

    @cached_property
    def _environment(self) -> jinja2.Environment:
        environment = jinja2.Environment(
            # Only macros/ is imported; a root that holds a few templates of its own takes the package's.
            loader=jinja2.FileSystemLoader([self.root, sql_root() / self.dialect]),
            undefined=jinja2.StrictUndefined,
            autoescape=False,  # SQL, not HTML: names go through ident and literal
            keep_trailing_newline=True,
            trim_blocks=not self.preserve_lines,
            lstrip_blocks=not self.preserve_lines,
            finalize=_refuse_plain,
        )
        environment.filters["ident"] = lambda name: quote_identifier(self.dialect, str(name))
        environment.filters["literal"] = lambda text: quote_literal(self.dialect, str(text))
        environment.filters["drawn_message_id"] = drawn_message_id
        environment.filters["drawn_id"] = drawn_id
        environment.filters["message_id_stem"] = message_id_stem
        environment.filters["json_text"] = json_text
        environment.filters["json_long_text"] = json_long_text
        return environment

    def template_text(self, path: str) -> str:
        """The template as it stands on disk."""
        if path not in self._sources:
            self._sources[path] = (self.root / path).read_text(encoding="utf-8")
        return self._sources[path]

    def render(self, path: str, box: NamedBox | None = None) -> str:
        """Render one file; per-box folders need the box."""
        text = self._pattern(path, box).text
        return text.replace(BOX, box.name) if box else text

    def _pattern(self, path: str, box: NamedBox | None) -> _Pattern:
        """One file, rendered once for all named boxes of a kind."""
        stand_in = box if box is None or box in DEFAULT_BOXES else NamedBox(BOX, box.kind)
        found = self._patterns.get((path, stand_in))
        if found is None:
            text = self._render(path, stand_in)
            digest = hashlib.sha256(text.encode()).digest()
            lines = self._lines.get((path, stand_in), ())
            found = _Pattern(text, digest, not split_batches(self.dialect, text), lines)
            self._patterns[path, stand_in] = found
        return found

    def _render(self, path: str, box: NamedBox | None) -> str:
        seen = self._seen.setdefault(box, set())
        db_seen = self._seen.setdefault(None, set())
        prefix = f"{box.name}_" if box else ""
        roles = self._routine_roles() if path.startswith("roles/") else ()
        try:
            text = self._template(path).render(
                db=_Names(self.dialect, self.schema, "", db_seen if box is None else set()),
                box=_Names(self.dialect, self.schema, prefix, seen) if box else _NoBox(),
                key=_Keys(self.dialect, None, prefix, seen),
                schema=_Plain(self.schema),
                box_name=_Plain(box.name) if box else jinja2.StrictUndefined(name="box_name"),
                kind=box.kind if box else jinja2.StrictUndefined(name="kind"),
                boxes=[{"name": _Plain(each.name), "kind": each.kind} for each in self.boxes],
                routine_roles=roles,
                test_clock=self.test_clock,
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise InvalidArgument(f"{self.dialect}/{path}: the template must render: {error}") from error
        if self.preserve_lines:
            text, self._lines[path, box] = _place_lines(text)
        return text

    def _routine_roles(self) -> list[tuple[str, str]]:
        """Every template of a routine, as a unit's id begins, and who may call it."""
        return [
            (path.removesuffix(".sql"), role)
            for folder in FOLDERS
            if not folder.startswith(("tables/", "views/", "roles"))
            for path in self.paths(folder)
            for role in self._roles(path)
        ]

    def _roles(self, path: str) -> list[str]:
        found = _ROLE.search(self.template_text(path))
        return found["roles"].split(", ") if found else ["internal"]

    def _template(self, path: str) -> jinja2.Template:
        template = self._templates.get(path)
        if template is None:
            source = self.template_text(path)
            template = self._environment.from_string(_mark_lines(source) if self.preserve_lines else source)
            self._templates[path] = template
        return template

    def paths(self, folder: str) -> list[str]:
        """The folder's files in deployment order: by name, moved behind what ``-- after:`` names."""
        names = sorted(file.stem for file in (self.root / folder).glob("*.sql"))
        after = {name: _read_after(self.template_text(f"{folder}/{name}.sql")) for name in names}
        ordered: list[str] = []
        open_names: list[str] = []

        def place(name: str) -> None:
            if name in ordered:
                return
            if name in open_names:
                raise InvalidArgument(
                    f"{self.dialect}/{folder}/{name}.sql: '-- after:' must not go in a circle"
                )
            if name not in after:
                raise InvalidArgument(
                    f"{self.dialect}/{folder}/{open_names[-1]}.sql: '-- after: {name}' must name a file"
                )
            open_names.append(name)
            for earlier in after[name]:
                place(earlier)
            open_names.pop()
            ordered.append(name)

        for name in names:
            place(name)
        return [f"{folder}/{name}.sql" for name in ordered]

    def units(self, *, roles: bool = False) -> Iterator[Unit]:
        """Every unit in deployment order; ``roles/`` only on request.

        Tables come by version, then by box and folder, so that a new version sees the older one complete.
        """
        every = [
            unit for folder in FOLDERS if roles or folder != "roles" for unit in self._folder_units(folder)
        ]
        tables = [unit for unit in every if unit.kind == "versioned"]
        yield from sorted(tables, key=lambda unit: unit.version)  # stable: folder order within a version
        yield from (unit for unit in every if unit.kind == "repeatable")

    def _folder_units(self, folder: str) -> Iterator[Unit]:
        paths = self.paths(folder)
        for box in self.boxes_of(folder):
            for path in paths:
                if not self._pattern(path, box).is_empty:  # a file may render to nothing
                    yield self.unit(path, box)

    def boxes_of(self, folder: str) -> list[NamedBox] | list[None]:
        """The boxes a folder is rendered for; ``[None]`` for once per schema."""
        scope = FOLDERS[folder]
        if scope == "schema":
            return [None]
        return [box for box in self.boxes if scope in ("queue", box.kind)]

    def unit(self, path: str, box: NamedBox | None = None) -> Unit:
        """Render one file as a unit."""
        folder, _, file = path.rpartition("/")
        stem = file.removesuffix(".sql")
        tables = folder.startswith("tables/")
        match = _VERSION.match(stem) if tables else None
        pattern = self._pattern(path, box)
        prefix = f"{box.name}_" if box else _PREFIXES.get(folder, "")
        name = stem if folder == "internal" and stem.startswith("_") else object_name(stem, prefix)
        identity = path.removesuffix(".sql")
        return Unit(
            id=f"{identity}@{box.name}" if box else identity,
            folder=folder,
            path=path,
            box=box,
            kind="versioned" if tables else "repeatable",
            version=int(match["version"]) if match else 1,
            object_name=name,
            dialect=self.dialect,
            pattern=pattern.text,
            digest=pattern.digest,
            lines=pattern.lines,
            role="internal" if tables or folder.startswith(("views/", "roles")) else self._roles(path)[0],
        )

    def check_names(self) -> None:
        """Refuse boxes of which two would generate the same name; call after rendering everything."""
        owner: dict[str, str] = {}
        shared = {name.lower() for name in self._seen.get(None, set())}
        for box in self.boxes:
            for pattern in sorted(
                self._seen.get(box, set()) | self._seen.get(NamedBox(BOX, box.kind), set())
            ):
                if box in DEFAULT_BOXES and BOX in pattern:
                    continue
                name = pattern.replace(BOX, box.name).lower()
                _check_length(self.dialect, name)
                other = owner.setdefault(name, box.name)
                if other != box.name:
                    raise InvalidArgument(
                        f"box {box.name!r}: its object {name!r} collides with one of box {other!r};"
                        " give it another name"
                    )
                if (
                    name in shared and box not in DEFAULT_BOXES
                ):  # schema-level files may name the default boxes
                    raise InvalidArgument(
                        f"box {box.name!r}: its object {name!r} collides with one of the schema;"
                        " give it another name"
                    )


def render_file(
    dialect: Dialect,
    relative_path: str,
    *,
    schema: str = "infra",
    box: NamedBox | None = None,
    boxes: Sequence[NamedBox] = DEFAULT_BOXES,
    preserve_lines: bool = False,
    test_clock: bool = False,
    root: Path | None = None,
) -> str:
    """Render one: ``render_file("mssql", "queue/claim.sql", box=NamedBox("outbox", "outbox"))``."""
    renderer = Renderer(
        dialect, schema=schema, boxes=boxes, root=root, preserve_lines=preserve_lines, test_clock=test_clock
    )
    return renderer.render(relative_path, box)


def render_units(
    dialect: Dialect,
    *,
    schema: str = "infra",
    boxes: Sequence[NamedBox] = DEFAULT_BOXES,
    roles: bool = False,
    preserve_lines: bool = False,
    test_clock: bool = False,
    root: Path | None = None,
) -> Iterator[Unit]:
    """Render every unit of a deployment, in deployment order."""
    renderer = Renderer(
        dialect, schema=schema, boxes=boxes, root=root, preserve_lines=preserve_lines, test_clock=test_clock
    )
    return renderer.units(roles=roles)


def split_batches(dialect: Dialect, text: str) -> tuple[str, ...]:
    """What is sent as one: the whole text for PostgreSQL, the parts between ``GO`` lines for T-SQL."""
    parts = [text] if dialect == "postgres" else _GO.split(text)
    return tuple(part.strip("\r\n") + "\n" for part in parts if part.strip())


def _refuse_plain(value: object) -> object:
    if isinstance(value, _Plain):
        raise jinja2.TemplateRuntimeError(f"{str(value)!r} is printed without the filter ident or literal")
    return value


def _read_after(text: str) -> list[str]:
    names: list[str] = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        match = _AFTER.match(line)
        if match:
            names += [name.strip().removesuffix(".sql") for name in match["names"].split(",")]
    return names


def _mark_lines(source: str) -> str:
    """Begin every line that starts outside a tag with its number, so that its place is known afterwards."""
    marked: list[str] = []
    closing: str | None = None
    for number, line in enumerate(source.splitlines(keepends=True), start=1):
        marked.append(line if closing else f"{_MARK}{number}{_MARK}{line}")
        rest = line
        while True:
            if closing is None:
                opened = _TAG_OPEN.search(rest)
                if opened is None:
                    break
                closing, rest = _TAG_CLOSE[opened.group()], rest[opened.end() :]
            _, found, rest = rest.partition(closing)
            if not found:
                break
            closing = None
    return "".join(marked)


def _place_lines(text: str) -> tuple[str, tuple[int, ...]]:
    """Put every line at the number it has in the template, and tell for each line which that is.

    A branch not taken leaves blank lines. A macro, or a loop that prints its lines more than once, shifts
    those behind it; all lines of a macro have the number of its call.
    """
    placed: list[str] = []
    numbers: list[int] = []
    done = 0
    for piece in re.split(f"(?={_MARK}\\d+{_MARK})", text):
        match = re.match(f"{_MARK}(\\d+){_MARK}", piece)
        number = int(match[1]) if match else 1
        content = "\n" * max(0, number - 1 - done) + piece[match.end() :] if match else piece
        missing = max(0, number - 1 - done) if match else 0
        ended = content.count("\n")
        numbers += [done + 1 + each for each in range(missing)] + [number] * (ended - missing)
        done += ended
        placed.append(content)
    return "".join(placed), (*numbers, numbers[-1] + 1 if numbers else 1)
