{#-
What is where, by topic: the table @known with ready, scheduled, in_flight, done, dead and since, the time from which on the
oldest claimable message waits. Wants @now_at.

    {{ stats.known() }}

    SELECT … FROM @known AS k
-#}
{% import "macros/messages.sql" as messages with context %}

{% macro known() -%}
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
            {{ messages.since() }} AS since
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
    SELECT t.topic_key, NULL, NULL, 0, 0, 0, t.done, t.dead, NULL
    FROM {{ box.tally_total }} AS t
    UNION ALL
    SELECT t.topic_key, NULL, NULL, 0, 0, 0, SUM(t.done), SUM(t.dead), NULL
    FROM {{ box.tally }} AS t
    GROUP BY t.topic_key;

    UPDATE s
    SET since = {{ messages.since() }}
    FROM @state AS s
    INNER JOIN {{ box.ready }} AS r WITH (FORCESEEK) ON r.lane = s.lane AND r.ticket = s.ticket
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = COALESCE(r.id, r.ticket)
    WHERE s.lane IS NOT NULL;

    INSERT INTO @known (topic_key, ready, scheduled, in_flight, done, dead, since)
    SELECT s.topic_key, SUM(s.ready), SUM(s.scheduled), SUM(s.in_flight), SUM(s.done), SUM(s.dead), MIN(s.since)
    FROM @state AS s
    GROUP BY s.topic_key;
{%- endmacro %}
