{% import "macros/doctor.sql" as doctor with context %}
{% set schema_subject = "'schema ' || " ~ (schema | literal) %}
CREATE OR REPLACE FUNCTION {{ db._doctor_tables }}(least_pages integer)
{{ doctor.result() }}
AS $$
    -- What the server's statistics tell of this schema's tables and sequences; no table is read.
    -- least_pages: a smaller table or index is not looked at for bloat
    -- returns: check, level, subject, detail, advice
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    schema_id CONSTANT oid := to_regnamespace({{ schema | ident | literal }})::oid;
BEGIN
    {% call doctor.look("autovacuum", schema_subject, "it is on and keeps up") %}
            SELECT
                'error', 'server', s.name || ' is off: the tables only grow, and so does the age of their rows',
                format('ALTER SYSTEM SET %I = on; SELECT pg_reload_conf();', s.name)
            FROM pg_settings AS s
            WHERE s.name IN ('autovacuum', 'track_counts') AND s.setting = 'off'
            UNION ALL
            SELECT
                'error', 'table ' || c.relname, 'autovacuum is turned off for this table',
                format('ALTER TABLE %s RESET (autovacuum_enabled);', c.oid::regclass)
            FROM pg_class AS c
            CROSS JOIN LATERAL pg_options_to_table(c.reloptions) AS o
            WHERE c.relnamespace = schema_id AND c.relkind = 'r'
                AND o.option_name = 'autovacuum_enabled' AND o.option_value IN ('false', 'off', 'no', '0')
            UNION ALL
            SELECT
                'warning', 'table ' || c.relname,
                format(
                    'about %s dead rows beside %s live ones; %s', t.n_dead_tup, t.n_live_tup,
                    coalesce(
                        'vacuumed last ' || {{ doctor.lasting("clock_timestamp() - greatest(t.last_autovacuum, t.last_vacuum)") }}
                        || ' ago', 'never vacuumed'
                    )
                ),
                format(
                    'VACUUM (VERBOSE, ANALYZE) %s; -- first see horizon: what somebody holds back it cannot remove', c.oid::regclass
                )
            FROM pg_class AS c
            INNER JOIN pg_stat_all_tables AS t ON t.relid = c.oid
            WHERE c.relnamespace = schema_id AND c.relkind = 'r'
                AND t.n_dead_tup > greatest(
                    100000,
                    5 * (
                        current_setting('autovacuum_vacuum_threshold')::integer
                        + current_setting('autovacuum_vacuum_scale_factor')::double precision * t.n_live_tup
                    )
                )
    {% endcall %};

    -- How many pages the live rows would take, by what the last VACUUM and ANALYZE have noted. Rough: only what is four
    -- times as large counts.
    {% call doctor.look("bloat", schema_subject, "no table or index is four times as large as its rows, as the last VACUUM and ANALYZE tell") %}
            SELECT
                CASE WHEN s.pages > 10 * s.needed AND s.pages >= 10 * least_pages THEN 'warning' ELSE 'note' END,
                CASE s.relkind WHEN 'i' THEN 'index ' ELSE 'table ' END || s.relname,
                format(
                    '%s where its %s rows need about %s', pg_size_pretty(s.pages * s.page_bytes), s.rows,
                    pg_size_pretty(s.needed * s.page_bytes)
                ),
                CASE s.relkind
                    WHEN 'i' THEN format('REINDEX INDEX CONCURRENTLY %s;', s.relid::regclass)
                    ELSE format('VACUUM (FULL, ANALYZE) %s; -- locks the table while it runs; pg_repack does not', s.relid::regclass)
                END
            FROM (
                SELECT
                    c.oid AS relid, c.relname, c.relkind, c.relpages::bigint AS pages, c.reltuples::bigint AS rows,
                    current_setting('block_size')::bigint AS page_bytes,
                    ceil(
                        greatest(c.reltuples, 0) * (CASE c.relkind WHEN 'i' THEN 16 ELSE 28 END + w.bytes)
                        / (0.9 * current_setting('block_size')::integer)
                    )::bigint + 10 AS needed
                FROM pg_class AS c
                LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
                CROSS JOIN LATERAL (
                    SELECT coalesce(sum(st.avg_width * (1 - st.null_frac)), 0) AS bytes
                    FROM pg_attribute AS a
                    INNER JOIN pg_class AS t ON t.oid = a.attrelid
                    INNER JOIN pg_stats AS st
                        ON st.schemaname = {{ schema | literal }} AND st.tablename = t.relname AND st.attname = a.attname
                    WHERE a.attrelid = coalesce(i.indrelid, c.oid) AND (i.indkey IS NULL OR a.attnum = ANY (i.indkey))
                ) AS w
                WHERE c.relnamespace = schema_id AND c.relkind IN ('r', 'i') AND c.relpages >= least_pages AND c.reltuples >= 0
            ) AS s
            WHERE s.pages > 4 * s.needed
    {% endcall %};

    {% call doctor.look("sequences", schema_subject, "none is near its end") %}
            SELECT
                CASE WHEN s.used > 0.95 THEN 'error' ELSE 'warning' END, 'sequence ' || s.relname,
                format('%s %% of its numbers are used: %s of %s', round((s.used * 100)::numeric, 1), s.last_value, s.seqmax),
                CASE
                    WHEN s.seqmax < 9223372036854775807 AND NOT EXISTS (SELECT FROM {{ db._place }})
                        THEN format('ALTER SEQUENCE %s AS bigint MAXVALUE 9223372036854775807;', s.relid::regclass)
                    ELSE 'There are no larger numbers, or they are another place''s: deploy to a new schema, and let this one run empty.'
                END
            FROM (
                SELECT
                    q.seqrelid AS relid, c.relname, q.seqmax, v.last_value,
                    (v.last_value::numeric - q.seqstart) / (q.seqmax::numeric - q.seqstart) AS used
                FROM pg_sequence AS q
                INNER JOIN pg_class AS c ON c.oid = q.seqrelid
                CROSS JOIN LATERAL pg_sequence_last_value(q.seqrelid) AS v (last_value)
                -- What a box's home is, is no number of anything.
                WHERE c.relnamespace = schema_id AND q.seqmax > q.seqstart
                    AND c.relname::text NOT IN (SELECT '_' || b.name || '_home' FROM {{ db._box }} AS b)
            ) AS s
            WHERE s.used > 0.8
    {% endcall %};
END;
$$;
