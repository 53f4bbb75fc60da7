"""What a text says it creates: names, argument types, whose rights, which path."""

from __future__ import annotations

from pathlib import Path

import pytest

from pysqlbox.deploy.declarations import Declaration, declarations, unpinned_definers
from pysqlbox.deploy.render import Renderer
from pysqlbox.names import DEFAULT_BOXES, DIALECTS, Dialect, NamedBox

ORDERS = NamedBox("orders", "inbox")


def declared(tmp_path: Path, text: str, box: NamedBox | None = ORDERS) -> list[Declaration]:
    """What one template declares."""
    folder = tmp_path / "postgres" / ("queue" if box else "admin")
    folder.mkdir(parents=True)
    (folder / "a.sql").write_text(text)
    return declarations(Renderer("postgres", root=tmp_path).unit(f"{folder.name}/a.sql", box))


@pytest.mark.parametrize(
    ("parameters", "types"),
    [
        ("", ""),
        ("id bigint", "bigint"),
        ("ids bigint[] DEFAULT '{}', OUT n int", "bigint[]"),
        ("INOUT a numeric(12, 3) = 0, VARIADIC b text[]", "numeric(12, 3), text[]"),
        (
            "a double precision DEFAULT coalesce(1, 2), -- one, two\n b timestamptz",
            "double precision, timestamptz",
        ),
        ("""a text DEFAULT 'x, y) it''s', "b c" "my type"[]""", 'text, "my type"[]'),
        ("rows {{ box.message }}[]", '"infra"."orders_message"[]'),
    ],
)
def test_types_of_arguments(tmp_path: Path, parameters: str, types: str) -> None:
    """Modes, defaults, comments, and commas where they separate nothing."""
    text = f"CREATE OR REPLACE FUNCTION {{{{ box.x }}}}({parameters}) RETURNS int LANGUAGE sql AS $$;$$;"
    found = declared(tmp_path, text)
    assert [each.target for each in found] == [f'"infra"."orders_x"({types})']


def test_several_objects_and_nothing_from_bodies(tmp_path: Path) -> None:
    """Every routine and view of a file; what a body or a comment says is none."""
    found = declared(
        tmp_path,
        "/* CREATE VIEW {{ db.no }} */ CREATE SEQUENCE {{ db.s }};\n"
        "CREATE FUNCTION {{ db.f }}(a int) RETURNS int LANGUAGE sql AS $x$ CREATE VIEW {{ db.no }}; $x$;\n"
        "create or replace procedure {{ db.f }}(a text) language sql security definer\n"
        "set search_path to pg_catalog, pg_temp as $$ $$;\n"
        "CREATE OR REPLACE VIEW {{ db.v }} AS SELECT 1;\n",
        box=None,
    )
    assert found == [
        Declaration("routine", '"infra"."f"(int)'),
        Declaration("routine", '"infra"."f"(text)', definer=True, pinned=True),
        Declaration("view", '"infra"."v"'),
    ]


@pytest.mark.parametrize(
    "path", ["pg_temp, pg_catalog", "pg_catalog", "public, pg_catalog, pg_temp", '"$user"']
)
def test_only_the_one_path_counts(tmp_path: Path, path: str) -> None:
    """pg_temp not named is searched first, and any other schema is somebody's."""
    text = f"CREATE FUNCTION {{{{ db.f }}}}() RETURNS int LANGUAGE sql SET search_path = {path} AS $$ $$;"
    assert [each.pinned for each in declared(tmp_path, text, box=None)] == [False]


def test_the_release_is_pinned() -> None:
    """And each of its routines and views declares exactly its own name."""
    units = list(Renderer("postgres", boxes=(*DEFAULT_BOXES, ORDERS)).units(roles=True))
    assert unpinned_definers(units, roles=True) == []
    for unit in units:
        if unit.kind == "repeatable" and unit.folder != "roles":
            names = {each.target.partition("(")[0] for each in declarations(unit)}
            assert names == {f'"infra"."{unit.object_name}"'}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_rendering_serves_all_named_boxes(dialect: Dialect) -> None:
    """The text is the one that the box's own name would have rendered, whatever the template does with it."""
    boxes = (*DEFAULT_BOXES, ORDERS, NamedBox("mail", "outbox"))
    renderer = Renderer(dialect, schema="it's", boxes=boxes)
    seen = 0
    for unit in renderer.units():
        if unit.box is not None:
            assert unit.text == renderer._render(unit.path, unit.box)
            seen += 1
    assert seen > 100
