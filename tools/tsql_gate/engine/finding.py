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
CREATE TABLE sys.dm_exec_sessions (session_id smallint NOT NULL, login_name nvarchar(128) NOT NULL,
  program_name nvarchar(128), status nvarchar(30) NOT NULL, last_request_end_time datetime,
  transaction_isolation_level smallint NOT NULL, database_id smallint NOT NULL,
  open_transaction_count int NOT NULL)
GO
CREATE TABLE sys.dm_tran_active_snapshot_database_transactions (transaction_id bigint, session_id int,
  elapsed_time_seconds bigint)
GO
CREATE TABLE sys.dm_tran_version_store_space_usage (database_id int, reserved_page_count bigint,
  reserved_space_kb bigint)
GO
CREATE TABLE sys.dm_tran_persistent_version_store_stats (database_id int,
  persistent_version_store_size_kb bigint)
GO
CREATE TABLE sys.dm_tran_database_transactions (transaction_id bigint NOT NULL, database_id int NOT NULL,
  database_transaction_begin_time datetime)
GO
CREATE TABLE sys.dm_tran_session_transactions (session_id int, transaction_id bigint)
GO
CREATE TABLE sys.dm_hadr_database_replica_states (database_id int, replica_id uniqueidentifier, is_local bit,
  synchronization_state_desc nvarchar(60), is_suspended bit, log_send_queue_size bigint,
  redo_queue_size bigint, secondary_lag_seconds bigint)
GO
CREATE TABLE sys.availability_replicas (replica_id uniqueidentifier, replica_server_name nvarchar(256))
GO
CREATE TABLE sys.databases (name sysname NOT NULL, database_id int NOT NULL,
  compatibility_level tinyint NOT NULL, is_auto_close_on bit NOT NULL, is_auto_shrink_on bit,
  is_read_committed_snapshot_on bit, log_reuse_wait_desc nvarchar(60))
GO
CREATE TABLE sys.configurations (name nvarchar(35) NOT NULL, value_in_use sql_variant)
GO
CREATE TABLE sys.tables (name sysname NOT NULL, object_id int NOT NULL, schema_id int NOT NULL,
  lock_escalation_desc nvarchar(60))
GO
CREATE TABLE sys.columns (object_id int NOT NULL, max_length smallint NOT NULL)
GO
CREATE TABLE sys.partitions (object_id int NOT NULL, index_id int NOT NULL, hobt_id bigint NOT NULL,
  rows bigint)
GO
CREATE TABLE sys.allocation_units (container_id bigint NOT NULL, type tinyint NOT NULL,
  used_pages bigint NOT NULL)
GO
CREATE TABLE sys.indexes (object_id int NOT NULL, name sysname, is_disabled bit)
GO
CREATE TABLE sys.sequences (name sysname NOT NULL, schema_id int NOT NULL, start_value sql_variant NOT NULL,
  current_value sql_variant NOT NULL, maximum_value sql_variant NOT NULL, is_cached bit, cache_size int)
GO
CREATE TABLE sys.schemas (name sysname NOT NULL, schema_id int NOT NULL, principal_id int NULL)
GO
CREATE TABLE sys.objects (name sysname NOT NULL, object_id int NOT NULL, schema_id int NOT NULL, type char(2))
GO
CREATE TABLE sys.sql_modules (object_id int NOT NULL, definition nvarchar(max))
GO
CREATE TABLE sys.database_principals (name sysname NOT NULL, principal_id int NOT NULL, type char(1))
GO
CREATE TABLE sys.database_permissions (class tinyint NOT NULL, major_id int NOT NULL,
  permission_name nvarchar(128), grantee_principal_id int NOT NULL, state char(1) NOT NULL)
GO
"""
"""Both the binder and the model lack these: what the routines use of them, as Microsoft documents it."""

BINDER_STUBS = """\
CREATE TABLE #pysqlbox_doctor (no int IDENTITY NOT NULL, [check] nvarchar(40), level nvarchar(10),
  subject nvarchar(1000), detail nvarchar(max), advice nvarchar(max))
GO
CREATE TABLE #pysqlbox_metrics (no int IDENTITY NOT NULL, box nvarchar(128), topic nvarchar(255),
  ready bigint, scheduled bigint, in_flight bigint,
  done bigint, dead bigint, given_up bigint, expired_leases bigint,
  oldest_ready_seconds float, oldest_dead_seconds float, blocked_groups bigint, longest_blocked_seconds float,
  upkeep_seconds float, reap_seconds float)
GO
CREATE PROCEDURE sys.sp_set_session_context @key sysname, @value sql_variant, @read_only bit = 0 AS RETURN 0
GO
"""
"""The binder lacks these as well."""
