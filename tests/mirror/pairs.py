"""Every routine of the test deployment, once per template and kind of box, in both dialects side by side."""

from __future__ import annotations

from functools import cache

from pysqlbox.names import DEFAULT_BOXES, Dialect
from pysqlbox.paths import sql_root
from tools.routines import Routine, routines

Pair = tuple[Routine, Routine]
"""PostgreSQL's and T-SQL's."""


def files(dialect: Dialect) -> set[str]:
    """The templates of a dialect, relative to its folder; each dialect has macros of its own."""
    root = sql_root() / dialect
    found = {path.relative_to(root).as_posix() for path in root.rglob("*.sql")}
    return {path for path in found if not path.startswith("macros/")}


@cache
def by_title(dialect: Dialect) -> dict[str, Routine]:
    """Routines by `path` or `path@box`; the default boxes stand for all."""
    found = routines(dialect, boxes=DEFAULT_BOXES, test_clock=True)
    return {
        f"{routine.path}@{routine.box.name}" if routine.box else routine.path: routine for routine in found
    }


def pairs() -> dict[str, Pair]:
    """The routines that both dialects have."""
    postgres, mssql = by_title("postgres"), by_title("mssql")
    return {title: (postgres[title], mssql[title]) for title in postgres if title in mssql}
