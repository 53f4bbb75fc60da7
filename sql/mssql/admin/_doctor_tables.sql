{% import "macros/doctor.sql" as doctor with context %}
{% set subject = ("schema " ~ schema) | literal %}

-- What the catalog tells of this schema's tables and sequences; no table is read.
-- least_pages: a smaller table is not looked at for ghosts
-- returns: check, level, subject, detail, advice; into #pysqlbox_doctor
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._doctor_tables }}
    @least_pages int
AS
BEGIN
    SET NOCOUNT ON;

    -- Rows of the queue's tables are short, some 300 bytes at most. Four times as many pages as they need are ghosts and
    -- empty pages; to count the ghosts would mean to read them all.
    {% call doctor.look("ghost_records", subject, "no table has many more pages than its rows need", right="definition", elsewhere=false) %}
            SELECT
                N'warning' AS level, CONCAT(N'table ', g.name) AS subject,
                CONCAT(g.pages, N' pages for ', g.row_count, N' rows: ghosts that a snapshot or a replica keeps, or pages that are left empty') AS detail,
                CONCAT(
                    N'SELECT ghost_record_count, version_ghost_record_count FROM sys.dm_db_index_physical_stats(DB_ID(), ',
                    g.object_id, N', NULL, NULL, N''DETAILED''); -- after version_store: ALTER INDEX ALL ON ',
                    QUOTENAME({{ schema | literal }}), N'.', QUOTENAME(g.name), N' REORGANIZE;'
                ) AS advice
            FROM (
                SELECT t.object_id, t.name, SUM(a.used_pages) AS pages, MAX(p.rows) AS row_count
                FROM sys.tables AS t
                INNER JOIN sys.partitions AS p ON p.object_id = t.object_id AND p.index_id IN (0, 1)
                INNER JOIN sys.allocation_units AS a ON a.container_id = p.hobt_id AND a.type = 1
                WHERE t.schema_id = SCHEMA_ID({{ schema | literal }})
                    AND NOT EXISTS (SELECT 1 FROM sys.columns AS c WHERE c.object_id = t.object_id AND c.max_length = -1)
                GROUP BY t.object_id, t.name
            ) AS g
            WHERE g.pages >= @least_pages AND g.pages > 4 * (g.row_count * 300 / 8000 + 10)
    {% endcall %}

    {% call doctor.look("lock_escalation", subject, "it is off where rows come and go", right="definition", elsewhere=false) %}
            SELECT
                N'warning' AS level, CONCAT(N'table ', t.name) AS subject,
                CONCAT(N'its lock escalation is ', t.lock_escalation_desc, N': a large batch may lock all of it, and everybody else waits') AS detail,
                CONCAT(
                    N'ALTER TABLE ', QUOTENAME({{ schema | literal }}), N'.', QUOTENAME(t.name), N' SET (LOCK_ESCALATION = DISABLE);'
                ) AS advice
            FROM sys.tables AS t
            WHERE t.schema_id = SCHEMA_ID({{ schema | literal }})
                AND t.lock_escalation_desc <> N'DISABLE'
                AND t.name NOT LIKE N'[_]%'
                AND t.name NOT LIKE N'%[_]settings'
                AND t.name NOT LIKE N'%[_]paused'
                AND t.name NOT LIKE N'%[_]tally[_]total'
    {% endcall %}

    {% call doctor.look("sequences", subject, "none is near its end", right="definition") %}
            SELECT
                CASE WHEN s.used > 0.95 THEN N'error' ELSE N'warning' END AS level, CONCAT(N'sequence ', s.name) AS subject,
                CONCAT(CONVERT(decimal(5, 1), s.used * 100), N' % of its numbers are used: ', s.current_value, N' of ', s.maximum_value) AS detail,
                CASE
                    WHEN s.maximum_value < 9223372036854775807 AND NOT EXISTS (SELECT 1 FROM {{ db._place }})
                        THEN CONCAT(
                            N'ALTER SEQUENCE ', QUOTENAME({{ schema | literal }}), N'.', QUOTENAME(s.name), N' NO MAXVALUE;'
                        )
                    ELSE N'There are no larger numbers, or they are another place''s: deploy to a new schema, and let this one run empty.'
                END AS advice
            FROM (
                SELECT
                    q.name, CONVERT(bigint, q.current_value) AS current_value, CONVERT(bigint, q.maximum_value) AS maximum_value,
                    CASE
                        WHEN CONVERT(bigint, q.start_value) < CONVERT(bigint, q.current_value)
                            THEN (CONVERT(float, CONVERT(bigint, q.current_value)) - CONVERT(float, CONVERT(bigint, q.start_value)))
                            / (CONVERT(float, CONVERT(bigint, q.maximum_value)) - CONVERT(float, CONVERT(bigint, q.start_value)))
                        ELSE 0
                    END AS used
                FROM sys.sequences AS q
                WHERE q.schema_id = SCHEMA_ID({{ schema | literal }})
            ) AS s
            WHERE s.used > 0.8
    {% endcall %}

    {% call doctor.look("sequence_cache", subject, "numbers are noted once in ten thousand", right="definition", elsewhere=false) %}
            SELECT
                N'warning' AS level, CONCAT(N'sequence ', q.name) AS subject,
                N'it has a small cache or none: each time that is used up, everybody who sends waits for the disk' AS detail,
                CONCAT(N'ALTER SEQUENCE ', QUOTENAME({{ schema | literal }}), N'.', QUOTENAME(q.name), N' CACHE 10000;') AS advice
            FROM sys.sequences AS q
            WHERE q.schema_id = SCHEMA_ID({{ schema | literal }}) AND (q.is_cached = 0 OR ISNULL(q.cache_size, 0) < 1000)
    {% endcall %}
END;
