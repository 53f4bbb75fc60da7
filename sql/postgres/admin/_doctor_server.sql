{% import "macros/doctor.sql" as doctor with context %}
CREATE OR REPLACE FUNCTION {{ db._doctor_server }}()
{{ doctor.result() }}
AS $$
    -- What the server is set to and how near its limits it is.
    -- returns: check, level, subject, detail, advice
    -- errors: none
    -- locks: none
    -- role: internal
BEGIN
    {% call doctor.look("standby", "'server'", "it is a primary and takes writes") %}
            SELECT
                'error', 'server', 'it is a standby in recovery: nothing can be sent or claimed here',
                'Connect to the primary; or, if that is gone for good: SELECT pg_promote();'
            WHERE pg_is_in_recovery()
            UNION ALL
            SELECT
                'error', 'database ' || current_database(),
                'default_transaction_read_only is on where this session comes from: calls that write fail',
                format('ALTER DATABASE %I RESET default_transaction_read_only;', current_database())
            FROM pg_settings AS s
            WHERE s.name = 'default_transaction_read_only' AND s.setting = 'on' AND NOT pg_is_in_recovery()
    {% endcall %};

    -- Whoever wrote a time later than now had another clock, or this one was set back.
    {% call doctor.look("clock", "'server'", "no clock differs as far as the server can see") %}
{% if test_clock %}
            SELECT
                'warning', 'schema ' || {{ schema | literal }},
                format('it has a clock for tests, which is %s ahead of the server''s', {{ doctor.lasting("make_interval(secs => c.last_value / 1000.0)") }}),
                format('SELECT %s(0);', {{ db._set_clock | literal }})
            FROM {{ db._clock }} AS c
            WHERE c.last_value <> 0
            UNION ALL
{% endif %}
            SELECT
                'warning', 'standby ' || w.application_name,
                format('its clock is at least %s ahead of this server''s', {{ doctor.lasting("w.reply_time - clock_timestamp()") }}),
                'Set the clocks of both machines by NTP: leases and due times go by that of whoever is primary.'
            FROM pg_stat_replication AS w
            WHERE w.reply_time > clock_timestamp() + interval '2 seconds'
    {% endcall %};

    {% call doctor.look("connections", "'server'", "enough connections are free") %}
            SELECT
                CASE WHEN c.used > 0.95 * c.free_for_all THEN 'error' ELSE 'warning' END, c.subject,
                format('%s of %s connections are taken', c.used, c.free_for_all), c.advice
            FROM (
                SELECT
                    'server' AS subject, sum(d.numbackends) AS used,
                    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
                    - coalesce(current_setting('reserved_connections', true)::integer, 0) AS free_for_all,
                    'ALTER SYSTEM SET max_connections = ' || current_setting('max_connections')::integer * 2
                    || '; -- and restart; or a pooler before it' AS advice
                FROM pg_stat_database AS d
                UNION ALL
                SELECT
                    'database ' || n.datname, s.numbackends, n.datconnlimit,
                    format('ALTER DATABASE %I CONNECTION LIMIT %s;', n.datname, n.datconnlimit * 2)
                FROM pg_database AS n
                INNER JOIN pg_stat_database AS s ON s.datid = n.oid
                WHERE n.datname = current_database() AND n.datconnlimit > 0
            ) AS c
            WHERE c.used > 0.8 * c.free_for_all
    {% endcall %};

    {% call doctor.look("notifications", "'server'", "the queue of notifications is nearly empty") %}
            SELECT
                CASE WHEN u.used > 0.5 THEN 'error' ELSE 'warning' END, 'server',
                format(
                    'the queue of notifications is %s %% full: a session that listens does not read, mostly because its transaction'
                    ' stays open; when it is full every commit that notifies fails', round((u.used * 100)::numeric, 1)
                ),
                'End the session that the server''s log names, or the longest under idle_in_transaction.'
            FROM pg_notification_queue_usage() AS u (used)
            WHERE u.used > 0.1
    {% endcall %};

    {% call doctor.look("transaction_age", "'database ' || current_database()", "freezing keeps up") %}
            SELECT
                CASE WHEN greatest(d.xids, d.mxids) > 1500000000 THEN 'error' ELSE 'warning' END,
                'database ' || current_database(),
                format(
                    'it has rows of %s transactions ago (%s multixacts); at 2,100,000,000 the server takes no more writes',
                    d.xids, d.mxids
                ),
                coalesce(
                    (
                        SELECT format('VACUUM (FREEZE, VERBOSE) %s; -- the oldest', c.oid::regclass)
                        FROM pg_class AS c
                        WHERE c.relkind IN ('r', 'm', 't')
                        ORDER BY greatest(age(c.relfrozenxid), mxid_age(c.relminmxid)) DESC
                        LIMIT 1
                    ),
                    'VACUUM (FREEZE, VERBOSE);'
                )
            FROM (
                SELECT age(n.datfrozenxid) AS xids, mxid_age(n.datminmxid) AS mxids
                FROM pg_database AS n
                WHERE n.datname = current_database()
            ) AS d
            WHERE d.xids > greatest(500000000, 1.25 * current_setting('autovacuum_freeze_max_age')::integer)
                OR d.mxids > greatest(500000000, 1.25 * current_setting('autovacuum_multixact_freeze_max_age')::integer)
    {% endcall %};
END;
$$;
