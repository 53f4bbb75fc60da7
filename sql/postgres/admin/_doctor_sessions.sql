{% import "macros/doctor.sql" as doctor with context %}
CREATE OR REPLACE FUNCTION {{ db._doctor_sessions }}(after_seconds integer)
{{ doctor.result() }}
AS $$
    -- Who holds back what vacuum may remove, who writes and does not end, who is idle in a transaction.
    -- Neither the text of a query nor its arguments are shown: they may hold payloads.
    -- after_seconds: from how long on it counts
    -- returns: check, level, subject, detail, advice
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    until_at CONSTANT timestamptz := clock_timestamp() - make_interval(secs => after_seconds);
BEGIN
    -- Of a slot the server tells since when it is not used from version 17 on only, hence the detour; how long standby
    -- feedback has been where it is nobody tells, so it goes by transactions.
    {% call doctor.look("horizon", "'database ' || current_database()", "nobody holds back what vacuum may remove") %}
            SELECT
                CASE WHEN a.xact_start < clock_timestamp() - interval '1 hour' THEN 'error' ELSE 'warning' END,
                'session ' || a.pid,
                format(
                    'role %s, application "%s", %s: its transaction is open for %s and keeps what %s left',
                    a.usename, a.application_name, a.state, {{ doctor.lasting("clock_timestamp() - a.xact_start") }},
                    {{ doctor.counted("greatest(age(a.backend_xmin), age(a.backend_xid))", "transaction has", "transactions have") }}
                ),
                format('SELECT pg_terminate_backend(%s);', a.pid)
            FROM pg_stat_activity AS a
            WHERE a.datname = current_database()
                AND a.backend_type NOT IN ('autovacuum worker', 'parallel worker')
                AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
                AND a.xact_start <= until_at
                AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum AS v WHERE v.pid = a.pid)
            UNION ALL
            SELECT
                CASE WHEN x.prepared < clock_timestamp() - interval '1 hour' THEN 'error' ELSE 'warning' END,
                'prepared transaction ' || x.gid,
                format(
                    'role %s prepared it %s ago and nobody has ended it; it keeps its locks and what %s left',
                    x.owner, {{ doctor.lasting("clock_timestamp() - x.prepared") }},
                    {{ doctor.counted("age(x.transaction)", "transaction has", "transactions have") }}
                ),
                format('ROLLBACK PREPARED %L; -- or COMMIT PREPARED, as its transaction manager decided', x.gid)
            FROM pg_prepared_xacts AS x
            WHERE x.database = current_database() AND x.prepared <= until_at
            UNION ALL
            SELECT
                CASE
                    WHEN s.active THEN CASE WHEN greatest(age(s.xmin), age(s.catalog_xmin)) > 1000000 THEN 'warning' ELSE 'note' END
                    WHEN s.inactive_since < clock_timestamp() - interval '1 hour' OR s.kept_bytes > 10737418240 THEN 'error'
                    ELSE 'warning'
                END,
                'replication slot ' || s.slot_name,
                concat_ws(
                    '; ',
                    CASE
                        WHEN s.active THEN format('in use by session %s', s.active_pid)
                        WHEN s.inactive_since IS NULL THEN 'nobody uses it'
                        ELSE 'nobody uses it since ' || {{ doctor.lasting("s.inactive_since") }}
                    END,
                    'keeps what ' || {{ doctor.counted("age(s.xmin)", "transaction has", "transactions have") }} || ' left',
                    'keeps what ' || {{ doctor.counted("age(s.catalog_xmin)", "transaction has", "transactions have") }} || ' left in the catalog',
                    'keeps ' || pg_size_pretty(s.kept_bytes) || ' of WAL'
                ),
                CASE
                    WHEN s.active THEN 'Look at the queries of the standby or subscriber that uses it.'
                    ELSE format('SELECT pg_drop_replication_slot(%L); -- if its standby or subscriber is gone for good', s.slot_name)
                END
            FROM (
                SELECT
                    r.slot_name, r.active, r.active_pid, r.xmin, r.catalog_xmin,
                    (to_jsonb(r) ->> 'inactive_since')::timestamptz AS inactive_since,
                    pg_wal_lsn_diff(
                        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, r.restart_lsn
                    ) AS kept_bytes
                FROM pg_replication_slots AS r
            ) AS s
            WHERE CASE
                WHEN s.active THEN greatest(age(s.xmin), age(s.catalog_xmin)) > 1000
                ELSE coalesce(s.inactive_since <= until_at, true)
            END
            UNION ALL
            SELECT
                CASE WHEN age(w.backend_xmin) > 1000000 THEN 'warning' ELSE 'note' END,
                'standby ' || w.application_name,
                format(
                    'session %s: queries on this standby (hot_standby_feedback) keep what %s transactions have left',
                    w.pid, age(w.backend_xmin)
                ),
                'ALTER SYSTEM SET hot_standby_feedback = off; -- on the standby; or end the long query there'
            FROM pg_stat_replication AS w
            WHERE w.backend_xmin IS NOT NULL AND age(w.backend_xmin) > 1000
            {{ doctor.hidden() }}
    {% endcall %};

    {% call doctor.look("writing_transactions", "'database ' || current_database()", "nobody has written and not ended") %}
            SELECT
                CASE WHEN a.xact_start < clock_timestamp() - interval '1 hour' THEN 'error' ELSE 'warning' END,
                'session ' || a.pid,
                format(
                    'role %s, application "%s", %s: it has written, holds its locks, and its transaction is open for %s',
                    a.usename, a.application_name, a.state, {{ doctor.lasting("clock_timestamp() - a.xact_start") }}
                ),
                format('SELECT pg_terminate_backend(%s);', a.pid)
            FROM pg_stat_activity AS a
            WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL AND a.xact_start <= until_at
            {{ doctor.hidden() }}
    {% endcall %};

    {% call doctor.look("idle_in_transaction", "'database ' || current_database()", "nobody is idle in a transaction") %}
            SELECT
                'warning', 'session ' || a.pid,
                format(
                    'role %s, application "%s": %s for %s, its transaction is open for %s',
                    a.usename, a.application_name, a.state, {{ doctor.lasting("clock_timestamp() - a.state_change") }},
                    {{ doctor.lasting("clock_timestamp() - a.xact_start") }}
                ),
                format(
                    'SELECT pg_terminate_backend(%s); -- and for the future: ALTER ROLE %I SET idle_in_transaction_session_timeout = ''60s'';',
                    a.pid, a.usename
                )
            FROM pg_stat_activity AS a
            WHERE a.datname = current_database()
                AND a.state IN ('idle in transaction', 'idle in transaction (aborted)')
                AND a.state_change <= until_at
            {{ doctor.hidden() }}
    {% endcall %};
END;
$$;
