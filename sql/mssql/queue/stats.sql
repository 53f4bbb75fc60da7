-- How many messages each topic has in each state, and how long its oldest claimable one has been waiting.
-- Done ones are not counted but remembered, so the cost is that of what is waiting or dead.
-- Waits for nobody: what is not committed yet may be counted.
-- returns: topic, ready, scheduled, in_flight, done, dead, oldest_ready_seconds; by topic, the total last, with a null topic
-- errors: none
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.stats }}
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    IF SERVERPROPERTY('Babelfish') IS NULL
        SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @state TABLE (
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
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

    INSERT INTO @state (topic_key, ready, scheduled, in_flight, done, dead)
    SELECT r.topic_key, COUNT_BIG(*), 0, 0, 0, 0
    FROM {{ box.ready }} AS r
    WHERE r.group_key IS NULL
    GROUP BY r.topic_key;

    INSERT INTO @state (topic_key, ready, scheduled, in_flight, done, dead, since)
    SELECT
        g.topic_key,
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
    GROUP BY g.topic_key;

    INSERT INTO @state (topic_key, ready, scheduled, in_flight, done, dead, since)
    SELECT
        s.topic_key,
        COUNT_BIG(CASE WHEN s.due_at <= @now_at THEN 1 END),
        COUNT_BIG(CASE WHEN s.due_at > @now_at THEN 1 END),
        0, 0, 0,
        MIN(CASE WHEN s.due_at <= @now_at THEN s.due_at END)
    FROM {{ box.scheduled }} AS s
    WHERE s.id IS NOT NULL
    GROUP BY s.topic_key;

    INSERT INTO @state (topic_key, ready, scheduled, in_flight, done, dead)
    SELECT l.topic_key, 0, 0, COUNT_BIG(*), 0, 0
    FROM {{ box.lease }} AS l
    GROUP BY l.topic_key;

    INSERT INTO @state (topic_key, ready, scheduled, in_flight, done, dead)
    SELECT t.topic_key, 0, 0, 0, t.done, 0
    FROM {{ box.tally_total }} AS t;

    INSERT INTO @state (topic_key, ready, scheduled, in_flight, done, dead)
    SELECT t.topic_key, 0, 0, 0, SUM(t.done), 0
    FROM {{ box.tally }} AS t
    GROUP BY t.topic_key;

    INSERT INTO @state (topic_key, ready, scheduled, in_flight, done, dead)
    SELECT d.topic_key, 0, 0, 0, 0, COUNT_BIG(*)
    FROM {{ box.dead }} AS d
    WHERE d.topic_key IS NOT NULL
    GROUP BY d.topic_key;

    INSERT INTO @known (topic_key, ready, scheduled, in_flight, done, dead, since)
    SELECT s.topic_key, SUM(s.ready), SUM(s.scheduled), SUM(s.in_flight), SUM(s.done), SUM(s.dead), MIN(s.since)
    FROM @state AS s
    GROUP BY s.topic_key;

    -- The head of each topic's log stands for its oldest message.
    UPDATE k
    SET since = h.since
    FROM @known AS k
    INNER JOIN (
        SELECT
            t.topic_key,
{% if kind == "inbox" %}
            CASE WHEN m.due_at > m.first_seen_at THEN m.due_at ELSE m.first_seen_at END AS since
{% else %}
            CASE WHEN m.due_at > m.created_at THEN m.due_at ELSE m.created_at END AS since
{% endif %}
        FROM @known AS t
        CROSS APPLY (
            SELECT TOP (1) COALESCE(r.id, r.ticket) AS id
            FROM {{ box.ready }} AS r
            WHERE r.topic_key = t.topic_key AND r.group_key IS NULL
            ORDER BY r.topic_key, r.lane, r.ticket
        ) AS f
        INNER JOIN {{ box.message }} AS m ON m.id = f.id
    ) AS h ON h.topic_key = k.topic_key
    WHERE k.since IS NULL OR h.since < k.since;

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
