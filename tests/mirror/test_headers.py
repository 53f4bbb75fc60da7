"""Headers are complete, true to the signature below them, and kept by the catalog of a running engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pysqlbox.deploy.render import render_units
from pysqlbox.names import DIALECTS, merge_boxes
from tests.mirror.pairs import by_title
from tests.support.boxes import BOXES, SCHEMA
from tests.support.database import Database
from tools.routines import FIELDS, HeaderError, Routine, read, routines

LOCK_ORDER = ("join", "group", "lease", "message")
ROLES = {"producer", "worker", "operator", "viewer", "internal"}
CODES = {"PB001", "PB002", "PB003"}

ROUTINES = {
    f"{dialect}-{title}": routine for dialect in DIALECTS for title, routine in by_title(dialect).items()
}
each_routine = pytest.mark.parametrize("routine", ROUTINES.values(), ids=ROUTINES.keys())


@each_routine
def test_header_is_complete(routine: Routine) -> None:
    header = routine.header
    assert header.purpose
    assert tuple(header.fields) == FIELDS, "returns, errors, locks, role, in this order"
    assert all(header.fields.values()), "a field without a value says none"


@each_routine
def test_header_uses_the_known_words(routine: Routine) -> None:
    header = routine.header
    assert header.names("role")
    assert set(header.names("role")) <= ROLES
    assert (header.names("role") == ("internal",)) == routine.internal
    assert set(header.names("errors")) <= CODES
    locks = header.names("locks")
    assert list(locks) == [name for name in LOCK_ORDER if name in locks], (
        "locks are named in the order they are taken"
    )
    if not routine.internal:
        assert header.names("returns"), "a public routine answers a result set with named columns"


@each_routine
def test_header_says_nothing_twice(routine: Routine) -> None:
    lines = [routine.header.purpose, *routine.header.text]
    assert len(lines) == len(set(lines))


def test_a_header_that_tells_a_parameter_twice_is_refused() -> None:
    unit = next(unit for unit in render_units("mssql", schema=SCHEMA) if unit.object_name == "outbox_reap")
    read("mssql", unit)
    twice = unit.text.replace("-- returns:", "-- batch_size: any\n-- returns:")
    with pytest.raises(HeaderError, match="batch_size is told twice"):
        read("mssql", replace(unit, pattern=twice))


@each_routine
def test_header_names_the_errors_that_the_text_raises(routine: Routine) -> None:
    assert routine.codes <= set(routine.header.names("errors"))


@each_routine
def test_header_names_the_columns_of_the_signature(routine: Routine) -> None:
    if routine.columns is not None:
        assert routine.columns == routine.header.names("returns")


@pytest.mark.dialect("postgres")
def test_catalog_of_postgres_has_the_same_parameters_and_headers(db: Database) -> None:
    rows = db.sql(
        """
        SELECT p.proname AS name, p.prosrc AS source, p.pronargdefaults AS optional,
            coalesce(p.proargnames, '{}') AS names,
            coalesce(p.proargmodes::text[], array_fill('i'::text, ARRAY[p.pronargs])) AS modes
        FROM pg_proc AS p INNER JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = %s
        ORDER BY p.pronargdefaults -- of overloads the one with most defaults counts
        """,
        SCHEMA,
    )
    catalog = {str(row["name"]): row for row in rows}
    expected = _deployed(db)
    assert set(catalog) == set(expected)
    for name, routine in expected.items():
        row = catalog[name]
        arguments = list(zip(_list(row["names"]), _list(row["modes"]), strict=True))
        assert [argument for argument, mode in arguments if mode in "ibv"] == [
            p.name for p in routine.parameters
        ]
        assert row["optional"] == sum(parameter.optional for parameter in routine.parameters)
        columns = tuple(argument for argument, mode in arguments if mode in "obt")
        assert columns in ((), routine.header.names("returns"))
        assert f"-- {routine.header.purpose}" in str(row["source"])


@pytest.mark.dialect("mssql")
def test_catalog_of_mssql_has_the_same_parameters(db: Database) -> None:
    rows = db.sql(
        """
        SELECT o.name AS name, p.name AS parameter
        FROM sys.objects AS o
            INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
            LEFT JOIN sys.all_parameters AS p
                ON p.object_id = o.object_id AND p.parameter_id > 0 AND p.is_output = 0
        WHERE s.name = %s AND o.type IN ('P', 'FN', 'IF', 'TF')
        ORDER BY o.name, p.parameter_id
        """,
        SCHEMA,
    )
    catalog: dict[str, list[str]] = {}
    for row in rows:
        parameters = catalog.setdefault(str(row["name"]), [])
        if row["parameter"]:
            parameters.append(str(row["parameter"]).removeprefix("@"))
    expected = {name: [p.name for p in routine.parameters] for name, routine in _deployed(db).items()}
    assert catalog == expected


def _deployed(db: Database) -> dict[str, Routine]:
    found = routines(db.dialect, schema=SCHEMA, boxes=merge_boxes(BOXES), test_clock=True)
    return {routine.name: routine for routine in found}


def _list(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(item) for item in value]
