{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/stats.sql" as stats with context %}
{% import "macros/upkeep.sql" as upkeep with context %}

-- One box's part of metrics.
-- returns: box, topic, ready, scheduled, in_flight, done, dead, given_up, expired_leases, oldest_ready_seconds, oldest_dead_seconds, blocked_groups, longest_blocked_seconds, upkeep_seconds, reap_seconds; into #pysqlbox_metrics, by topic, the total last, with a null topic
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._metrics }}
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @is_paused bit = 0;
    DECLARE @blocked bigint;
    DECLARE @blocked_since datetime2(6);
    DECLARE @made_at datetime2(6);
    DECLARE @cleaned_at datetime2(6);
    DECLARE @reaped_at datetime2(6);
    DECLARE @figures TABLE (
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        ready bigint NOT NULL,
        scheduled bigint NOT NULL,
        in_flight bigint NOT NULL,
        done bigint NOT NULL,
        dead bigint NOT NULL,
        given_up bigint NOT NULL,
        leases bigint NOT NULL,
        since datetime2(6),
        died_at datetime2(6)
    );
    {{ stats.known() }}

    IF EXISTS (SELECT 1 FROM {{ box.paused }} AS p WHERE p.topic_key = N'.')
        SET @is_paused = 1;

    WITH died AS (
        SELECT x.topic_key, COUNT_BIG(*) AS messages, MIN(x.died_at) AS first_at
        FROM {{ box.dead }} AS x
        WHERE x.topic_key IS NOT NULL AND x.cancelled = 0 AND x.expired = 0
        GROUP BY x.topic_key
    ),

    lost AS (
        SELECT x.topic_key, COUNT_BIG(*) AS leases
        FROM {{ box.lease }} AS x
        WHERE x.locked_until <= @now_at
        GROUP BY x.topic_key
    )

    INSERT INTO @figures (topic_key, ready, scheduled, in_flight, done, dead, given_up, leases, since, died_at)
    SELECT
        k.topic_key, k.ready, k.scheduled, k.in_flight, k.done, k.dead, ISNULL(d.messages, 0), ISNULL(l.leases, 0),
        CASE WHEN k.ready > 0 THEN k.since END, d.first_at
    FROM @known AS k
    LEFT JOIN died AS d ON d.topic_key = k.topic_key
    LEFT JOIN lost AS l ON l.topic_key = k.topic_key
    WHERE k.ready + k.scheduled + k.in_flight + k.dead > 0 OR k.done <> 0;

    -- The groups of the oldest ten thousand members whose head is not due yet or of a paused topic, while the one behind it
    -- is due.
    SELECT @blocked = COUNT_BIG(*), @blocked_since = MIN(CASE WHEN n.since > h.came_at THEN n.since ELSE h.came_at END)
    {{ groups.waiting_heads(10000) }}
        AND (h.due_at > @now_at OR h.is_paused = 1 OR @is_paused = 1)
        AND h.came_at <= @now_at AND n.since <= @now_at;

    SET @made_at = (SELECT b.created_at FROM {{ db._box }} AS b WHERE b.name = {{ box_name | literal }});
    SET @cleaned_at = ISNULL({{ upkeep.last("cleanup") }}, @made_at);
    SET @reaped_at = ISNULL({{ upkeep.last("reap") }}, @made_at);

    INSERT INTO #pysqlbox_metrics (
        box, topic, ready, scheduled, in_flight, done, dead, given_up, expired_leases, oldest_ready_seconds,
        oldest_dead_seconds, blocked_groups, longest_blocked_seconds, upkeep_seconds, reap_seconds
    )
    SELECT
        {{ box_name | literal }}, LEFT(f.topic_key, LEN(f.topic_key) - 1), f.ready, f.scheduled, f.in_flight, f.done, f.dead,
        f.given_up, f.leases,
        CONVERT(float, DATEDIFF_BIG(MICROSECOND, f.since, @now_at)) / 1000000,
        CONVERT(float, DATEDIFF_BIG(MICROSECOND, f.died_at, @now_at)) / 1000000,
        NULL, NULL, NULL, NULL
    FROM @figures AS f
    ORDER BY f.topic_key;

    INSERT INTO #pysqlbox_metrics (
        box, topic, ready, scheduled, in_flight, done, dead, given_up, expired_leases, oldest_ready_seconds,
        oldest_dead_seconds, blocked_groups, longest_blocked_seconds, upkeep_seconds, reap_seconds
    )
    SELECT
        {{ box_name | literal }}, NULL, ISNULL(SUM(f.ready), 0), ISNULL(SUM(f.scheduled), 0), ISNULL(SUM(f.in_flight), 0),
        ISNULL(SUM(f.done), 0), ISNULL(SUM(f.dead), 0), ISNULL(SUM(f.given_up), 0), ISNULL(SUM(f.leases), 0),
        CONVERT(float, DATEDIFF_BIG(MICROSECOND, MIN(f.since), @now_at)) / 1000000,
        CONVERT(float, DATEDIFF_BIG(MICROSECOND, MIN(f.died_at), @now_at)) / 1000000,
        @blocked,
        CONVERT(float, DATEDIFF_BIG(MICROSECOND, @blocked_since, @now_at)) / 1000000,
        CONVERT(float, DATEDIFF_BIG(MICROSECOND, @cleaned_at, @now_at)) / 1000000,
        CONVERT(float, DATEDIFF_BIG(MICROSECOND, @reaped_at, @now_at)) / 1000000
    FROM @figures AS f;
END;
