"""Planted T-SQL bugs are up to date: what they take out is still there, also where no engine runs them."""

from __future__ import annotations

import pytest

from pysqlbox.paths import sql_root
from tests.concurrency import test_join_planted_bugs, test_schedule_races, test_tsql_groups, test_tsql_keys
from tests.concurrency.planting import Bug

BUGS = [
    bug
    for planted in (
        test_join_planted_bugs.PLANTED_IN_T_SQL,
        test_schedule_races.PLANTED_IN_T_SQL,
        test_tsql_groups.PLANTED,
        test_tsql_keys.PLANTED,
    )
    for bug, _ in planted
]


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "_") for bug in BUGS])
def test_what_is_taken_out_is_there(bug: Bug) -> None:
    text = (sql_root() / "mssql" / (bug.macro or bug.file)).read_text(encoding="utf-8")
    assert bug.planted_text(text) != text
