"""What pysqlbox needs of a database's own settings before it is deployed there.

T-SQL's routines read group members versioned, and were written for the plans of SQL Server 2019: so the
database has to have READ_COMMITTED_SNAPSHOT on and compatibility level 150. PostgreSQL's needs the encoding
UTF8: whatever text is sent must get through, and in a database of SQL_ASCII nobody knows what text is.
"""

from __future__ import annotations

from pysqlbox.deploy.store import Store
from pysqlbox.drivers import mssql, postgres
from pysqlbox.errors import InvalidState
from pysqlbox.names import quote_identifier

#: The only encoding of PostgreSQL's that holds whatever may be in a message, and in the routines.
ENCODING = "UTF8"
#: SQL Server 2019's.
COMPATIBILITY_LEVEL = 150
#: How whoever deploys all the same says so to the stock yoyo command.
ALLOW_VARIABLE = "PYSQLBOX_ALLOW_UNFIT_DATABASE"


def shortcomings(store: Store) -> list[str]:
    """What the database's settings lack, each as a sentence with the statement that mends it."""
    if store.dialect != "mssql":
        return []
    query = (
        "SELECT name, is_read_committed_snapshot_on, compatibility_level,"
        " CAST(SERVERPROPERTY('Babelfish') AS int) FROM sys.databases WHERE database_id = DB_ID()"
    )
    rows = mssql.query(store.connection, query)
    if not rows:  # a role that may not see its own database's row
        return []
    name, is_versioned, level, is_babelfish = rows[0]
    # Babelfish has one isolation level, which is versioned, and calls its compatibility level 120.
    return [] if is_babelfish else judge(str(name), bool(is_versioned), int(level))


def judge(name: str, is_versioned: bool, level: int) -> list[str]:
    """What a SQL Server database of these settings lacks."""
    alter = f"ALTER DATABASE {quote_identifier('mssql', name)} SET"
    found = []
    if not is_versioned:
        found.append(
            "READ_COMMITTED_SNAPSHOT is off in this database; run:"
            f" {alter} READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE"
        )
    if level < COMPATIBILITY_LEVEL:
        found.append(
            f"this database has compatibility level {level}; run:"
            f" {alter} COMPATIBILITY_LEVEL = {COMPATIBILITY_LEVEL}"
        )
    return found


def require(store: Store, *, allow: bool) -> list[str]:
    """Refuse a database whose settings lack something, unless that is allowed; answer what they lack.

    A PostgreSQL database of another encoding is refused in any case.
    """
    if store.dialect == "postgres" and (encoding := postgres.encoding(store.connection)) != ENCODING:
        raise InvalidState(
            f"the database's encoding is {encoding}, which does not hold every text, must be {ENCODING}; dump"
            f" it, create it anew with ENCODING '{ENCODING}' TEMPLATE template0, and restore it there; or"
            " deploy into a database of its own"
        )
    found = shortcomings(store)
    if found and not allow:
        raise InvalidState("; ".join(found) + "; or allow it: --allow-unfit-database")
    return found
