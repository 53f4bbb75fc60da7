{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- How many messages each topic has in each state, and how long its oldest claimable one has been waiting.
-- Done ones are not counted but remembered, so the cost is that of what is waiting or dead.
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
    DECLARE @state TABLE (
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        lane int,
        ticket bigint,
        ready bigint NOT NULL,
        scheduled bigint NOT NULL,
        in_flight bigint NOT NULL,
        done bigint NOT NULL,
        dead bigint NOT NULL,
        since datetime2(6)
    );
    DECLARE @known TABLE (
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        ready bigint NOT NULL,
        scheduled bigint NOT NULL,
        in_flight bigint NOT NULL,
        done bigint NOT NULL,
        dead bigint NOT NULL,
        since datetime2(6)
    );

    -- One statement, so that every message is counted once, where it is. Of each lane of a topic the first ticket
    -- stands for the oldest message.
    INSERT INTO @state (topic_key, lane, ticket, ready, scheduled, in_flight, done, dead, since)
    SELECT r.topic_key, r.lane, MIN(r.ticket), COUNT_BIG(*), 0, 0, 0, 0, CONVERT(datetime2(6), NULL)
    FROM {{ box.ready }} AS r
    WHERE r.group_key IS NULL
    GROUP BY r.topic_key, r.lane
    UNION ALL
    SELECT
        g.topic_key, NULL, NULL,
        COUNT_BIG(CASE WHEN g.due_at IS NULL OR g.due_at <= @now_at THEN 1 END),
        COUNT_BIG(CASE WHEN g.due_at > @now_at THEN 1 END),
        0, 0, 0,
        MIN(CASE WHEN g.due_at IS NULL OR g.due_at <= @now_at THEN g.since END)
    FROM (
        SELECT
            m.topic + N'.' AS topic_key, m.due_at,
{% if kind == "inbox" %}
            CASE WHEN m.due_at > m.first_seen_at THEN m.due_at ELSE m.first_seen_at END AS since
{% else %}
            CASE WHEN m.due_at > m.created_at THEN m.due_at ELSE m.created_at END AS since
{% endif %}
        FROM {{ box.group_member }} AS gm
        INNER JOIN {{ box.message }} AS m ON m.id = gm.id
    ) AS g
    GROUP BY g.topic_key
    UNION ALL
    SELECT
        s.topic_key, NULL, NULL,
        COUNT_BIG(CASE WHEN s.due_at <= @now_at THEN 1 END),
        COUNT_BIG(CASE WHEN s.due_at > @now_at THEN 1 END),
        0, 0, 0,
        MIN(CASE WHEN s.due_at <= @now_at THEN s.due_at END)
    FROM {{ box.scheduled }} AS s
    WHERE s.id IS NOT NULL
    GROUP BY s.topic_key
    UNION ALL
    SELECT l.topic_key, NULL, NULL, 0, 0, COUNT_BIG(*), 0, 0, NULL
    FROM {{ box.lease }} AS l
    GROUP BY l.topic_key
    UNION ALL
    SELECT t.topic_key, NULL, NULL, 0, 0, 0, t.done, 0, NULL
    FROM {{ box.tally_total }} AS t
    UNION ALL
    SELECT t.topic_key, NULL, NULL, 0, 0, 0, SUM(t.done), 0, NULL
    FROM {{ box.tally }} AS t
    GROUP BY t.topic_key
    UNION ALL
    SELECT d.topic_key, NULL, NULL, 0, 0, 0, 0, COUNT_BIG(*), NULL
    FROM {{ box.dead }} AS d
    WHERE d.topic_key IS NOT NULL
    GROUP BY d.topic_key;

    UPDATE s
{% if kind == "inbox" %}
    SET since = CASE WHEN m.due_at > m.first_seen_at THEN m.due_at ELSE m.first_seen_at END
{% else %}
    SET since = CASE WHEN m.due_at > m.created_at THEN m.due_at ELSE m.created_at END
{% endif %}
    FROM @state AS s
    INNER JOIN {{ box.ready }} AS r WITH (FORCESEEK) ON r.lane = s.lane AND r.ticket = s.ticket
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = COALESCE(r.id, r.ticket)
    WHERE s.lane IS NOT NULL;

    INSERT INTO @known (topic_key, ready, scheduled, in_flight, done, dead, since)
    SELECT s.topic_key, SUM(s.ready), SUM(s.scheduled), SUM(s.in_flight), SUM(s.done), SUM(s.dead), MIN(s.since)
    FROM @state AS s
    GROUP BY s.topic_key;

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
