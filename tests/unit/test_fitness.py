"""What a database's settings lack, and what is to be run."""

from __future__ import annotations

from typing import Any

import pytest

from pysqlbox import InvalidState
from pysqlbox.deploy import fitness
from pysqlbox.drivers import mssql


class Store:
    """A store of one dialect; its connection is never used."""

    schema = "infra"
    connection: Any = None

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect


def store(dialect: str = "mssql") -> Any:
    """A store as far as is asked of it."""
    return Store(dialect)


@pytest.mark.parametrize(
    ("is_versioned", "level", "found"),
    [
        (True, 150, []),
        (True, 170, []),
        (
            False,
            160,
            [
                "READ_COMMITTED_SNAPSHOT is off in this database; run: ALTER DATABASE [my [db]]] SET"
                " READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE"
            ],
        ),
        (
            True,
            140,
            [
                "this database has compatibility level 140; run: ALTER DATABASE [my [db]]] SET"
                " COMPATIBILITY_LEVEL = 150"
            ],
        ),
    ],
)
def test_what_is_lacking(is_versioned: bool, level: int, found: list[str]) -> None:
    assert fitness.judge("my [db]", is_versioned, level) == found


def test_both_may_lack() -> None:
    assert len(fitness.judge("d", False, 100)) == 2


@pytest.mark.parametrize(
    ("row", "count"),
    [
        (("d", True, 160, None), 0),
        (("d", False, 140, None), 2),
        (("d", True, 120, 1), 0),  # Babelfish
        (("d", False, 120, 1), 0),
    ],
)
def test_the_server_is_asked(monkeypatch: pytest.MonkeyPatch, row: tuple[object, ...], count: int) -> None:
    monkeypatch.setattr(mssql, "query", lambda *_: [row])
    assert len(fitness.shortcomings(store())) == count


def test_postgres_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mssql, "query", lambda *_: pytest.fail("PostgreSQL is not asked in T-SQL"))
    assert fitness.shortcomings(store("postgres")) == []


def test_refused_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mssql, "query", lambda *_: [("d", False, 140, None)])
    with pytest.raises(InvalidState, match=r"is off .* level 140.*--allow-unfit-database"):
        fitness.require(store(), allow=False)
    assert len(fitness.require(store(), allow=True)) == 2
