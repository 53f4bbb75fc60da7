{% import "macros/doctor.sql" as doctor with context %}
{% set subject = "CONCAT(N'database ', DB_NAME())" %}

-- What the server and the database are set to and how near their limits they are.
-- returns: check, level, subject, detail, advice; into #pysqlbox_doctor
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._doctor_server }}
AS
BEGIN
    SET NOCOUNT ON;

    {% call doctor.look("standby", subject, "it takes writes") %}
            SELECT
                N'error' AS level, {{ subject }} AS subject,
                N'it is read-only here, as on a readable secondary: nothing can be sent or claimed' AS detail,
                CONCAT(N'Connect to the primary; or, if it was set so: ALTER DATABASE ', QUOTENAME(DB_NAME()), N' SET READ_WRITE;') AS advice
            WHERE CONVERT(nvarchar(30), DATABASEPROPERTYEX(DB_NAME(), 'Updateability')) = N'READ_ONLY'
    {% endcall %}

{% if test_clock %}
    {% call doctor.look("clock", "N'server'", "the clock for tests is not ahead") %}
            SELECT
                N'warning' AS level, {{ ("schema " ~ schema) | literal }} AS subject,
                CONCAT(N'it has a clock for tests, which is ', c.offset_seconds, N' s ahead of the server''s') AS detail,
                {{ ("EXEC " ~ db._set_clock ~ " @offset_seconds = 0;") | literal }} AS advice
            FROM {{ db._clock }} AS c
            WHERE c.offset_seconds <> 0
    {% endcall %}

{% endif %}
    {% call doctor.look("read_committed_snapshot", subject, "it is on", elsewhere=false) %}
            SELECT
                N'error' AS level, {{ subject }} AS subject,
                N'READ_COMMITTED_SNAPSHOT is off: readers and writers wait for each other, and a claim may pass members of a group over' AS detail,
                CONCAT(N'ALTER DATABASE ', QUOTENAME(d.name), N' SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE;') AS advice
            FROM sys.databases AS d
            WHERE d.database_id = DB_ID() AND d.is_read_committed_snapshot_on = 0
    {% endcall %}

    {% call doctor.look("compatibility_level", subject, "it is 150 or higher", elsewhere=false) %}
            SELECT
                N'error' AS level, {{ subject }} AS subject,
                CONCAT(N'it is ', d.compatibility_level, N'; the routines'' plans are those of 150, SQL Server 2019''s') AS detail,
                CONCAT(N'ALTER DATABASE ', QUOTENAME(d.name), N' SET COMPATIBILITY_LEVEL = 150;') AS advice
            FROM sys.databases AS d
            WHERE d.database_id = DB_ID() AND d.compatibility_level < 150
    {% endcall %}

    {% call doctor.look("auto_close", subject, "it is off", elsewhere=false) %}
            SELECT
                N'warning' AS level, {{ subject }} AS subject,
                N'AUTO_CLOSE is on: the database closes with its last connection, and its caches with it' AS detail,
                CONCAT(N'ALTER DATABASE ', QUOTENAME(d.name), N' SET AUTO_CLOSE OFF;') AS advice
            FROM sys.databases AS d
            WHERE d.database_id = DB_ID() AND d.is_auto_close_on = 1
    {% endcall %}

    {% call doctor.look("auto_shrink", subject, "it is off", elsewhere=false) %}
            SELECT
                N'warning' AS level, {{ subject }} AS subject,
                N'AUTO_SHRINK is on: files shrink and grow again with every wave of messages, and indexes fall to pieces' AS detail,
                CONCAT(N'ALTER DATABASE ', QUOTENAME(d.name), N' SET AUTO_SHRINK OFF;') AS advice
            FROM sys.databases AS d
            WHERE d.database_id = DB_ID() AND d.is_auto_shrink_on = 1
    {% endcall %}

    {% call doctor.look("log_reuse_wait", subject, "the log can be used again", elsewhere=false) %}
            SELECT
                CASE WHEN d.log_reuse_wait_desc = N'LOG_BACKUP' THEN N'note' ELSE N'warning' END AS level, {{ subject }} AS subject,
                CONCAT(N'its log cannot be used again and grows: ', d.log_reuse_wait_desc) AS detail,
                CASE
                    WHEN d.log_reuse_wait_desc = N'LOG_BACKUP'
                        THEN CONCAT(N'BACKUP LOG ', QUOTENAME(d.name), N' TO DISK = N''…''; -- as often as the log may grow')
                    WHEN d.log_reuse_wait_desc = N'ACTIVE_TRANSACTION' THEN N'See writing_transactions: KILL the session.'
                    WHEN d.log_reuse_wait_desc = N'AVAILABILITY_REPLICA' THEN N'See availability_groups.'
                    ELSE CONCAT(N'SELECT log_reuse_wait_desc FROM sys.databases WHERE name = N''', REPLACE(d.name, N'''', N''''''), N''';')
                END AS advice
            FROM sys.databases AS d
            WHERE d.database_id = DB_ID() AND d.log_reuse_wait_desc NOT IN (N'NOTHING', N'CHECKPOINT')
    {% endcall %}

    {% call doctor.look("max_memory", "N'server'", "it is limited", elsewhere=false) %}
            SELECT
                N'warning' AS level, N'server' AS subject,
                N'max server memory is not limited: the server may take what the operating system needs' AS detail,
                N'EXEC sp_configure N''show advanced options'', 1; RECONFIGURE; EXEC sp_configure N''max server memory (MB)'', …; RECONFIGURE;' AS advice
            FROM sys.configurations AS c
            WHERE c.name = N'max server memory (MB)' AND CONVERT(bigint, c.value_in_use) = 2147483647
                AND CONVERT(int, SERVERPROPERTY('EngineEdition')) NOT IN (5, 8)
    {% endcall %}

    {% call doctor.look("availability_groups", subject, "no replica lags behind, or there is none", right="server", elsewhere=false) %}
            SELECT
                CASE WHEN r.is_suspended = 1 OR r.secondary_lag_seconds > 3600 THEN N'error' ELSE N'warning' END AS level,
                CONCAT(N'replica ', ISNULL(a.replica_server_name COLLATE Latin1_General_100_BIN2, CONVERT(nvarchar(40), r.replica_id))) AS subject,
                CONCAT(
                    r.synchronization_state_desc, N', lags ', r.secondary_lag_seconds, N' s behind; ', r.log_send_queue_size,
                    N' KB of log wait to be sent, ', r.redo_queue_size, N' KB to be redone'
                ) AS detail,
                CASE
                    WHEN r.is_suspended = 1 THEN CONCAT(N'ALTER DATABASE ', QUOTENAME(DB_NAME()), N' SET HADR RESUME; -- on the replica')
                    ELSE N'Look at the network to it and at its disks; a synchronous replica makes every commit wait.'
                END AS advice
            FROM sys.dm_hadr_database_replica_states AS r
            LEFT JOIN sys.availability_replicas AS a ON a.replica_id = r.replica_id
            WHERE r.database_id = DB_ID() AND r.is_local = 0
                AND (r.is_suspended = 1 OR r.secondary_lag_seconds >= 60 OR r.log_send_queue_size > 102400 OR r.redo_queue_size > 1048576)
    {% endcall %}
END;
