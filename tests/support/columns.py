"""The result columns that a routine's header promises, to hold against what a call really answers."""

from __future__ import annotations

from functools import cache

from pysqlbox.names import Dialect, merge_boxes
from tests.support.boxes import BOXES
from tools.routines import routines


@cache
def _columns(dialect: Dialect) -> dict[str, list[str]]:
    found = routines(dialect, boxes=merge_boxes(BOXES), test_clock=True)
    return {routine.name: list(routine.header.names("returns")) for routine in found if not routine.internal}


def expected_columns(dialect: Dialect, routine: str) -> list[str] | None:
    """The columns in order; None for internal routines and those that the tree does not have."""
    return _columns(dialect).get(routine)
