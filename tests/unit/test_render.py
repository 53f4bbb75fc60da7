"""Templates: names, scopes, order, lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pysqlbox.deploy.render import Renderer, render_file, render_units, split_batches
from pysqlbox.errors import InvalidArgument
from pysqlbox.names import DEFAULT_BOXES, Dialect, NamedBox

OUTBOX, INBOX = DEFAULT_BOXES


def tree(root: Path, files: dict[str, str], dialect: Dialect = "postgres") -> Path:
    """Writes templates below `root` and answers it."""
    for path, text in files.items():
        file = root / dialect / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("postgres", "S.'outbox_claim' S.'_outbox_place' S.'_now' 'pk_outbox_message' "),
        ("mssql", "S.[outbox_claim] S.[_outbox_place] S.[_now] [pk_outbox_message] "),
    ],
)
def test_names(tmp_path: Path, dialect: Dialect, expected: str) -> None:
    """Objects of the box, internal ones, objects of the schema, constraints."""
    text = "{{ box.claim }} {{ box._place }} {{ db._now }} {{ key.pk_message }} "
    root = tree(tmp_path, {"queue/claim.sql": text}, dialect)
    quoted = '"s ""x"""' if dialect == "postgres" else '[s "x"]'
    expected = expected.replace("'", '"').replace("S.", f"{quoted}.")
    assert render_file(dialect, "queue/claim.sql", schema='s "x"', box=OUTBOX, root=root) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ schema }}", "without the filter"),
        ("{{ box_name }}", "without the filter"),
        ("{{ missing }}", "missing"),
        ("{% if %}", "Expected"),
        ("{{ box." + "x" * 60 + " }}", "must have at most 63"),
    ],
)
def test_mistakes_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """An unquoted name, an undefined one, a syntax error, a name that would be cut."""
    root = tree(tmp_path, {"queue/a.sql": text})
    with pytest.raises(InvalidArgument, match=message):
        render_file("postgres", "queue/a.sql", box=OUTBOX, root=root)


def test_schema_level_has_no_box(tmp_path: Path) -> None:
    """A template that is rendered once per schema cannot name a box's object."""
    root = tree(tmp_path, {"joins/start.sql": "{{ box.message }}"})
    with pytest.raises(
        InvalidArgument, match=r"joins/start.sql: the template must render: box.message: this folder"
    ):
        render_file("postgres", "joins/start.sql", root=root)


def test_quoting_filters(tmp_path: Path) -> None:
    """Names go through ident or literal."""
    text = "{{ schema | ident }} {{ schema | literal }} {{ (box_name ~ '_x') | ident }}"
    root = tree(tmp_path, {"queue/a.sql": text})
    rendered = render_file("postgres", "queue/a.sql", schema="it's", box=OUTBOX, root=root)
    assert rendered == "\"it's\" 'it''s' \"outbox_x\""


def test_scopes_order_and_names(tmp_path: Path) -> None:
    """Each folder for its boxes, tables first, `after` obeyed, routines named by file."""
    root = tree(
        tmp_path,
        {
            "tables/queue/message.sql": "-- after: queue\nx",
            "tables/queue/queue.sql": "x",
            "tables/queue/0002_more.sql": "x",
            "tables/joins/join.sql": "x",
            "internal/now.sql": "x",
            "internal/empty.sql": "{% if test_clock %}x{% endif %}\n",
            "views/outbox/messages.sql": "x",
            "queue/_place.sql": "x",
            "inbox/find.sql": "x",
            "joins/start.sql": "x",
            "ledger/_x.sql": "x",
            "roles/all.sql": "x",
        },
    )
    units = list(render_units("postgres", root=root))
    assert [unit.id for unit in units] == [
        "tables/queue/queue@outbox",
        "tables/queue/message@outbox",
        "tables/queue/queue@inbox",
        "tables/queue/message@inbox",
        "tables/joins/join",
        "tables/queue/0002_more@outbox",
        "tables/queue/0002_more@inbox",
        "internal/now",
        "views/outbox/messages@outbox",
        "queue/_place@outbox",
        "queue/_place@inbox",
        "inbox/find@inbox",
        "joins/start",
        "ledger/_x",
    ]
    names = [unit.object_name for unit in units if unit.kind == "repeatable"]
    boxes = ["outbox_messages", "_outbox_place", "_inbox_place", "inbox_find"]
    assert names == ["_now", *boxes, "join_start", "_ledger_x"]
    assert [unit.version for unit in units if "0002" in unit.id] == [2, 2]
    assert [unit.id for unit in render_units("postgres", root=root, roles=True)][-1] == "roles/all"


@pytest.mark.parametrize(("after", "message"), [("b", "circle"), ("c", "must name a file")])
def test_bad_order(tmp_path: Path, after: str, message: str) -> None:
    """`after` may neither go in a circle nor name a file that is not there."""
    root = tree(tmp_path, {"queue/a.sql": f"-- after: {after}\n", "queue/b.sql": "-- after: a\n"})
    with pytest.raises(InvalidArgument, match=message):
        list(render_units("postgres", root=root))


def test_lines_are_kept(tmp_path: Path) -> None:
    """Line N of the rendered text is line N of the template, whichever branch is taken."""
    text = "1\n{% if kind == 'inbox' %}\n3\n{% else %}\n5\n{% endif %}\n7 {# over\ntwo #}\n9 {{ box.a }}\n"
    root = tree(tmp_path, {"queue/a.sql": text})
    for box, kept in ((OUTBOX, "5"), (INBOX, "3")):
        lines = render_file("postgres", "queue/a.sql", box=box, root=root, preserve_lines=True).split("\n")
        assert lines[0] == "1"
        assert lines[int(kept) - 1] == kept
        assert lines[6] == "7 "
        assert lines[8].startswith("9 ")
    assert "\n\n" not in render_file("postgres", "queue/a.sql", box=OUTBOX, root=root)


def test_batches() -> None:
    """GO on a line of its own separates T-SQL batches; PostgreSQL gets its text whole."""
    assert split_batches("mssql", "a\nGO\n\n  go  \nb -- GO\nGO") == ("a\n", "b -- GO\n")
    assert split_batches("postgres", "a\nGO\nb") == ("a\nGO\nb\n",)
    assert split_batches("postgres", " \n") == ()


def test_colliding_boxes() -> None:
    """Boxes of the release whose objects would have the same name are refused."""
    boxes = (*DEFAULT_BOXES, NamedBox("outbox_message", "outbox"))
    renderer = Renderer("postgres", boxes=boxes)
    list(renderer.units())
    renderer.check_names()
    boxes = (*DEFAULT_BOXES, NamedBox("a", "outbox"), NamedBox("a_dead", "outbox"))
    renderer = Renderer("postgres", boxes=boxes)
    list(renderer.units())
    renderer.check_names()


@pytest.mark.parametrize("dialect", ["postgres", "mssql"])
def test_release_renders(dialect: Dialect) -> None:
    """Every file of the release, for a schema and boxes with difficult names."""
    boxes = (*DEFAULT_BOXES, NamedBox("x" * 30, "outbox"), NamedBox("o", "inbox"))
    units = list(render_units(dialect, schema="it's \"]", boxes=boxes, roles=True))
    assert len({unit.id for unit in units}) == len(units)
    assert all(unit.batches for unit in units)
