{% import "macros/doctor.sql" as doctor with context %}
{% set subject = "CONCAT(N'database ', DB_NAME())" %}

-- Who holds the version store back, who writes and does not end, who is idle in a transaction.
-- Neither the text of a query nor its arguments are shown: they may hold payloads.
-- after_seconds: from how long on it counts
-- returns: check, level, subject, detail, advice; into #pysqlbox_doctor
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._doctor_sessions }}
    @after_seconds int
AS
BEGIN
    SET NOCOUNT ON;

    {% call doctor.look("version_store", subject, "it is small, and nobody holds it back", right="server", elsewhere=false) %}
            SELECT
                CASE WHEN v.elapsed_time_seconds >= 3600 THEN N'error' ELSE N'warning' END AS level,
                CONCAT(N'session ', v.session_id) AS subject,
                CONCAT(
                    N'login ', s.login_name, N', program ', s.program_name, N', ', s.status, N': reads versions for ',
                    v.elapsed_time_seconds, N' s; no version and no ghost younger than that can be removed'
                ) AS detail,
                CONCAT(N'KILL ', v.session_id, N';') AS advice
            FROM sys.dm_tran_active_snapshot_database_transactions AS v
            INNER JOIN sys.dm_exec_sessions AS s ON s.session_id = v.session_id
            WHERE v.elapsed_time_seconds >= @after_seconds AND s.database_id = DB_ID()
            UNION ALL
            SELECT
                N'warning', {{ subject }}, CONCAT(N'its versions take ', u.reserved_space_kb / 1024, N' MB of tempdb'),
                N'End who holds them back; if nobody does, they go by themselves within minutes.'
            FROM sys.dm_tran_version_store_space_usage AS u
            WHERE u.database_id = DB_ID() AND u.reserved_space_kb > 10485760
            UNION ALL
            SELECT
                N'warning', {{ subject }}, CONCAT(N'its persistent versions take ', p.persistent_version_store_size_kb / 1024, N' MB'),
                N'End who holds them back, then: EXEC sys.sp_persistent_version_cleanup;'
            FROM sys.dm_tran_persistent_version_store_stats AS p
            WHERE p.database_id = DB_ID() AND p.persistent_version_store_size_kb > 10485760
    {% endcall %}

    -- These times are the server's local ones.
    {% call doctor.look("writing_transactions", subject, "nobody has written and not ended", right="server", elsewhere=false) %}
            SELECT
                CASE WHEN t.database_transaction_begin_time < DATEADD(HOUR, -1, GETDATE()) THEN N'error' ELSE N'warning' END AS level,
                CONCAT(N'session ', s.session_id) AS subject,
                CONCAT(
                    N'login ', s.login_name, N', program ', s.program_name, N', ', s.status,
                    N': it has written, holds its locks, and its transaction is open for ',
                    {{ doctor.lasting("t.database_transaction_begin_time", "GETDATE()") }}
                ) AS detail,
                CONCAT(N'KILL ', s.session_id, N';') AS advice
            FROM sys.dm_tran_database_transactions AS t
            INNER JOIN sys.dm_tran_session_transactions AS o ON o.transaction_id = t.transaction_id
            INNER JOIN sys.dm_exec_sessions AS s ON s.session_id = o.session_id
            WHERE t.database_id = DB_ID()
                AND t.database_transaction_begin_time <= DATEADD(SECOND, -@after_seconds, GETDATE())
    {% endcall %}

    {% call doctor.look("idle_in_transaction", subject, "nobody is idle in a transaction", right="server", elsewhere=false) %}
            SELECT
                N'warning' AS level, CONCAT(N'session ', s.session_id) AS subject,
                CONCAT(
                    N'login ', s.login_name, N', program ', s.program_name, N': idle in a transaction for ',
                    {{ doctor.lasting("s.last_request_end_time", "GETDATE()") }}
                ) AS detail,
                CONCAT(N'KILL ', s.session_id, N';') AS advice
            FROM sys.dm_exec_sessions AS s
            WHERE s.database_id = DB_ID() AND s.open_transaction_count > 0 AND s.status = N'sleeping'
                AND s.last_request_end_time <= DATEADD(SECOND, -@after_seconds, GETDATE())
    {% endcall %}
END;
