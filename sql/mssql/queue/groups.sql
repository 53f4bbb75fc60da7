{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- FIFO groups that have messages which are not over, those first that their head has held up longest.
-- The head is the first message that is leased, or the first of all if none is. It holds up the others while it is
-- leased, waits for its time or is of a paused topic, and another one waits behind it that is due: since the later of
-- the two has come, or that one was due. Where nothing is held up blocked_seconds is null. What waits behind a head
-- that can be claimed waits for a worker.
-- The cost is that of what waits in groups; nothing waits for anybody, and no low mark is relied on.
-- limit: from 1 to 10000
-- only_blocked: only those that are held up; null is false
-- returns: group_id, waiting, leased, head_id, head_status, head_due_at, blocked_seconds; longest held up first, the others by their head
-- errors: PB001
-- locks: none
-- role: viewer
CREATE OR ALTER PROCEDURE {{ box.groups }}
    @limit int = 100,
    @only_blocked bit = 0
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};

    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}

    -- One statement, so that every group is seen at one time.
    SELECT TOP (@limit)
        LEFT(s.group_key, LEN(s.group_key) - 1) AS group_id, s.waiting, s.leased, s.head_id,
{% if kind == "inbox" %}
        N'Processing' AS head_status,
{% else %}
        CASE WHEN s.leased > 0 THEN N'InProgress' ELSE N'Ready' END AS head_status,
{% endif %}
        s.due_at AS head_due_at,
        CONVERT(float, DATEDIFF_BIG(MICROSECOND, s.blocked_at, @now_at)) / 1000000 AS blocked_seconds
    FROM (
        SELECT
            k.group_key, k.waiting, k.leased, k.head_id, h.due_at,
            CASE
                WHEN (k.leased > 0 OR h.due_at > @now_at OR EXISTS (
                    SELECT 1 FROM {{ box.paused }} AS p WHERE p.topic_key IN (h.topic + N'.', N'.')
                )) AND b.came_at <= @now_at AND h.came_at <= @now_at AND (b.due_at IS NULL OR b.due_at <= @now_at)
                    THEN CASE
                        WHEN b.due_at > b.came_at AND b.due_at > h.came_at THEN b.due_at
                        WHEN b.came_at > h.came_at THEN b.came_at
                        ELSE h.came_at
                    END
            END AS blocked_at
        FROM (
            SELECT
                COALESCE(l.group_key, g.group_key) AS group_key, ISNULL(g.messages, 0) AS waiting,
                ISNULL(l.messages, 0) AS leased, COALESCE(l.first_id, g.first_id) AS head_id
            FROM (
                SELECT gm.group_key, MIN(gm.id) AS first_id, COUNT_BIG(*) AS messages
                FROM {{ box.group_member }} AS gm
                GROUP BY gm.group_key
            ) AS g
            FULL JOIN (
                SELECT e.group_key, MIN(e.id) AS first_id, COUNT_BIG(*) AS messages
                FROM {{ box.lease }} AS e
                WHERE e.group_key IS NOT NULL
                GROUP BY e.group_key
            ) AS l ON l.group_key = g.group_key
        ) AS k
        CROSS APPLY (
            SELECT m.topic, m.due_at, m.{{ "first_seen_at" if kind == "inbox" else "created_at" }} AS came_at
            FROM {{ box.message }} AS m WITH (FORCESEEK)
            WHERE m.id = k.head_id
        ) AS h
        OUTER APPLY (
            SELECT TOP (1) m.due_at, m.{{ "first_seen_at" if kind == "inbox" else "created_at" }} AS came_at
            FROM {{ box.group_member }} AS gm WITH (FORCESEEK)
            INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = gm.id
            WHERE gm.group_key = k.group_key AND gm.id > CASE WHEN k.leased > 0 THEN 0 ELSE k.head_id END
            ORDER BY gm.id
        ) AS b
    ) AS s
    WHERE s.blocked_at IS NOT NULL OR ISNULL(@only_blocked, 0) = 0
    ORDER BY CASE WHEN s.blocked_at IS NULL THEN 1 ELSE 0 END, s.blocked_at, s.head_id;
END;
