{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/stats.sql" as stats with context %}

-- How many messages each topic has in each state, and how long its oldest claimable one has been waiting.
-- Done and dead ones are not counted but remembered, so the cost is that of what is waiting.
-- Waits for nobody, and counts what is committed; in a database without READ_COMMITTED_SNAPSHOT it waits for whoever
-- has changed something and not committed it.
-- returns: topic, ready, scheduled, in_flight, done, dead, oldest_ready_seconds; by topic, the total last, with a null topic
-- errors: none
-- locks: none
-- role: worker, viewer
CREATE OR ALTER PROCEDURE {{ box.stats }}
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    {{ stats.known() }}

    SELECT a.topic, a.ready, a.scheduled, a.in_flight, a.done, a.dead, a.oldest_ready_seconds
    FROM (
        SELECT
            0 AS place, LEFT(k.topic_key, LEN(k.topic_key) - 1) AS topic,
            k.ready, k.scheduled, k.in_flight, k.done, k.dead,
            CASE
                WHEN k.ready > 0 THEN CONVERT(float, DATEDIFF_BIG(MICROSECOND, k.since, @now_at)) / 1000000
            END AS oldest_ready_seconds
        FROM @known AS k
        WHERE k.ready + k.scheduled + k.in_flight + k.dead > 0 OR k.done <> 0
        UNION ALL
        SELECT
            1, NULL, ISNULL(SUM(k.ready), 0), ISNULL(SUM(k.scheduled), 0), ISNULL(SUM(k.in_flight), 0),
            ISNULL(SUM(k.done), 0), ISNULL(SUM(k.dead), 0),
            CONVERT(float, DATEDIFF_BIG(MICROSECOND, MIN(CASE WHEN k.ready > 0 THEN k.since END), @now_at)) / 1000000
        FROM @known AS k
    ) AS a
    ORDER BY a.place, a.topic;
END;
