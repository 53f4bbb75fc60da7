"""Which ODBC driver is taken where there are several."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from pysqlbox.drivers import Target, mssql
from pysqlbox.drivers.url import read_odbc

ALL = ["SQLite3", "FreeTDS", "ODBC Driver 17 for SQL Server", "ODBC Driver 18 for SQL Server"]


@pytest.mark.parametrize(
    ("known", "first", "last"),
    [
        (ALL, "ODBC Driver 18 for SQL Server", "FreeTDS"),
        (ALL[:3], "ODBC Driver 17 for SQL Server", "FreeTDS"),
        (ALL[:2], "libmsodbcsql-18.6.so.2.1", "FreeTDS"),
        ([], "libmsodbcsql-18.6.so.2.1", "libmsodbcsql-18.6.so.2.1"),
    ],
    ids=["18", "17", "the wheel's", "the wheel's alone"],
)
def test_microsofts_go_before_freetds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: list[str], first: str, last: str
) -> None:
    folder = f"{tmp_path}/libs/linux/debian_ubuntu/x86_64/lib"
    library = f"{folder}/libmsodbcsql-18.6.so.2.1"
    Path(folder).mkdir(parents=True)
    Path(library).touch()
    monkeypatch.setattr(mssql, "_pyodbc", lambda: SimpleNamespace(drivers=lambda: known))
    spec = SimpleNamespace(origin=f"{tmp_path}/__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)
    found = [Path(name).name for name in mssql.installed_drivers()]
    assert (found[0], found[-1]) == (first, last)
    assert len(found) == len(set(known) - {"SQLite3"}) + 1


@pytest.mark.parametrize(
    ("dsn", "names"),
    [
        ("SERVER=h;UID=u", ["pysqlbox"]),
        ("SERVER=h;app=shop", ["shop"]),
        ("DSN=shop", []),
    ],
)
def test_a_program_that_has_a_name_keeps_it(dsn: str, names: list[str]) -> None:
    target = Target("mssql", dsn, "there", driver="FreeTDS")
    entries = read_odbc(mssql._connection_string(target))
    assert [value for key, value in entries.items() if key.lower() == "app"] == names
