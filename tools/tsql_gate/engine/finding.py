"""What a check reports, and the stubs of system objects that no check knows by itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass

Source = tuple[str, str]
"""A file's label and its text."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One complaint about one place of one rendered file."""

    label: str
    line: int
    column: int
    check: str
    message: str

    def as_json(self) -> dict[str, object]:
        """The finding as a JSON object."""
        return asdict(self)


SYSTEM_STUBS = """\
CREATE PROCEDURE sys.sp_getapplock @Resource nvarchar(255), @LockMode varchar(32),
  @LockOwner varchar(32) = 'Transaction', @LockTimeout int = -1, @DbPrincipal sysname = 'public' AS RETURN 0
GO
CREATE PROCEDURE sys.sp_releaseapplock @Resource nvarchar(255), @LockOwner varchar(32) = 'Transaction',
  @DbPrincipal sysname = 'public' AS RETURN 0
GO
CREATE TABLE sys.dm_exec_sessions (session_id smallint, transaction_isolation_level smallint)
GO
"""
"""Both the binder and the model lack these."""

BINDER_STUBS = """\
CREATE PROCEDURE sys.sp_set_session_context @key sysname, @value sql_variant, @read_only bit = 0 AS RETURN 0
GO
CREATE TABLE sys.tables (name sysname NOT NULL, object_id int NOT NULL, schema_id int NOT NULL)
GO
CREATE TABLE sys.schemas (name sysname NOT NULL, schema_id int NOT NULL, principal_id int NULL)
GO
CREATE TABLE sys.objects (name sysname NOT NULL, object_id int NOT NULL, schema_id int NOT NULL, type char(2))
GO
CREATE TABLE sys.sql_modules (object_id int NOT NULL, definition nvarchar(max))
GO
CREATE TABLE sys.database_principals (name sysname NOT NULL, principal_id int NOT NULL, type char(1))
GO
"""
"""The binder lacks these as well."""
