"""The two trees under sql/ have the same files, and their routines say the same in both dialects."""

from __future__ import annotations

import pytest

from tests.mirror.pairs import by_title, files, pairs
from tools.routines import Routine

DIFFERENT_PARAMETERS = {
    "internal/uuid.sql": "a T-SQL function may call neither NEWID() nor the clock, so its caller does",
    "inbox/_enqueue.sql": "PostgreSQL takes a batch as an array of rows; T-SQL one message as scalars",
    "inbox/_renew.sql": "PostgreSQL takes a message as a row; T-SQL as scalars",
    "joins/_fold.sql": "T-SQL tells its own transaction's probes by their locks",
    "outbox/_enqueue.sql": "PostgreSQL takes a batch as an array of rows; T-SQL one message as scalars",
    "queue/_claim_groups.sql": "T-SQL cannot hand a set to a caller, so it writes the leases itself",
    "queue/_replace.sql": "T-SQL reads the keys from the messages, for it has no arrays to pass them in",
}
"""Templates of internal routines whose parameters have to differ, and why; public ones never may."""

ONE_SIDED = {
    "outbox/_known.sql": "PostgreSQL's settings are a routine's, and cost every call of it",
    "queue/_arrive.sql": "T-SQL has no low marks",
    "queue/_cut_runs.sql": "T-SQL has no runs",
    "queue/_end_groups.sql": "T-SQL's groups have no rows, an application lock takes their place",
    "queue/_patrol.sql": "T-SQL has no low marks",
    "queue/_surplus.sql": "T-SQL's claims look who holds a group under the application lock",
    "queue/_sweep.sql": "T-SQL's claim buries the expired of each set that it looks at",
    "queue/_take.sql": "T-SQL cannot hand a set to a caller, so cancel takes them itself",
    "queue/_unpaused.sql": "PostgreSQL's claim reads past paused topics from a low mark",
}
"""Templates of internal routines that one dialect has no use for, and why."""

SAME_TYPES = {
    "uuid": "uniqueidentifier",
    "text": "nvarchar(max)",
    "bigint[]": "nvarchar(max)",
    "text[]": "nvarchar(max)",
    "uuid[]": "nvarchar(max)",
    "jsonb": "nvarchar(max)",
    "timestamptz": "datetimeoffset(6)",
    "bytea": "varbinary(max)",
    "boolean": "bit",
    "numeric": "decimal(19,3)",
    "double precision": "decimal(19,3)",
    "integer": "int",
    "smallint": "smallint",
    "bigint": "bigint",
}
"""A public parameter's type in T-SQL by its type in PostgreSQL. Text is nvarchar(max) throughout: a shorter
parameter would cut an argument that is too long instead of letting the routine reject it."""

TITLES = sorted(pairs())
PUBLIC = [title for title in TITLES if not pairs()[title][0].internal]


def test_both_trees_have_the_same_files() -> None:
    postgres, mssql = files("postgres"), files("mssql")
    assert postgres - mssql == {path for path in ONE_SIDED if path in postgres}
    assert mssql - postgres == {path for path in ONE_SIDED if path in mssql}
    assert ONE_SIDED.keys() <= postgres | mssql


def test_both_dialects_have_the_same_routines() -> None:
    postgres, mssql = by_title("postgres"), by_title("mssql")
    alone = [routine for routine in (*postgres.values(), *mssql.values()) if routine.path in ONE_SIDED]
    assert all(routine.internal for routine in alone)
    assert {t: r.name for t, r in postgres.items() if r.path not in ONE_SIDED} == {
        t: r.name for t, r in mssql.items() if r.path not in ONE_SIDED
    }
    assert PUBLIC, "no public routine was read"


@pytest.mark.parametrize("title", TITLES)
def test_parameters_are_the_same(title: str) -> None:
    postgres, mssql = pairs()[title]
    if postgres.path in DIFFERENT_PARAMETERS:
        assert postgres.internal
        return
    assert _parameters(postgres) == _parameters(mssql)


@pytest.mark.parametrize("title", PUBLIC)
def test_parameter_types_correspond(title: str) -> None:
    postgres, mssql = pairs()[title]
    expected = {parameter.name: SAME_TYPES[parameter.type] for parameter in postgres.parameters}
    found = {parameter.name: parameter.type.replace(" ", "") for parameter in mssql.parameters}
    assert found == expected


@pytest.mark.parametrize("title", PUBLIC)
def test_optional_parameters_stand_last(title: str) -> None:
    for routine in pairs()[title]:
        optional = [parameter.optional for parameter in routine.parameters]
        assert optional == sorted(optional)


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("field", ["returns", "errors", "role"])
def test_headers_say_the_same(title: str, field: str) -> None:
    postgres, mssql = pairs()[title]
    assert postgres.header.names(field) == mssql.header.names(field)


@pytest.mark.parametrize("title", PUBLIC)
def test_public_routines_take_the_same_locks(title: str) -> None:
    postgres, mssql = pairs()[title]
    assert postgres.header.names("locks") == mssql.header.names("locks")


@pytest.mark.parametrize("title", PUBLIC)
def test_headers_rule_the_same_parameters(title: str) -> None:
    postgres, mssql = pairs()[title]
    assert postgres.header.purpose == mssql.header.purpose
    assert postgres.header.rules == mssql.header.rules


def _parameters(routine: Routine) -> list[tuple[str, bool]]:
    return [(parameter.name, parameter.optional) for parameter in routine.parameters]
