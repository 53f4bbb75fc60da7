"""Where ``sql/`` and ``migrations/`` are: inside the wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def _find(name: str) -> Path:
    for base in (_PACKAGE, _PACKAGE.parent):
        if (base / name).is_dir():
            return base / name
    raise FileNotFoundError(f"pysqlbox is installed without its {name}/ directory")


def sql_root() -> Path:
    """The directory that holds ``postgres/`` and ``mssql/``."""
    return _find("sql")


def migrations_root() -> Path:
    """The directory of yoyo migrations."""
    return _find("migrations")
