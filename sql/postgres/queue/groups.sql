CREATE OR REPLACE FUNCTION {{ box.groups }}("limit" integer DEFAULT 100, only_blocked boolean DEFAULT false)
RETURNS TABLE (
    group_id text,
    waiting bigint,
    leased bigint,
    head_id bigint,
    head_status text,
    head_due_at timestamptz,
    blocked_seconds double precision
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
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
DECLARE
    now_at CONSTANT timestamptz := {{ db._now }}();
    paused text[];
    is_paused boolean;
BEGIN
    IF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    END IF;
    SELECT coalesce(array_agg(p.topic), '{}') INTO paused FROM {{ box.paused }} AS p;
    is_paused := '' = ANY (paused);
    -- Who is behind a head is asked only of those that hold somebody up.
    -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
    RETURN QUERY
    WITH member AS MATERIALIZED (
        SELECT gm.group_id, min(gm.id) AS first_id, count(*) AS messages
        FROM {{ box.group_member }} AS gm
        GROUP BY gm.group_id
    ),
    held AS MATERIALIZED (
        SELECT l.group_id, min(l.id) AS first_id, count(*) AS messages
        FROM {{ box.lease }} AS l
        WHERE l.group_id IS NOT NULL
        GROUP BY l.group_id
    ),
    known AS (
        SELECT
            coalesce(held.group_id, member.group_id) AS group_id, coalesce(member.messages, 0) AS waiting,
            coalesce(held.messages, 0) AS leased, coalesce(held.first_id, member.first_id) AS head_id
        FROM member
        FULL JOIN held ON held.group_id = member.group_id
        -- A head alone holds up nobody.
        WHERE member.messages > CASE WHEN held.messages IS NULL THEN 1 ELSE 0 END OR NOT coalesce(only_blocked, false)
    ),
    state AS (
        SELECT
            known.*, head.due_at,
            CASE WHEN behind.came_at IS NOT NULL THEN greatest(head.came_at, behind.came_at, behind.due_at) END AS since
        FROM known
        CROSS JOIN LATERAL (
            SELECT
                w.due_at, w.{{ "first_seen_at" if kind == "inbox" else "created_at" }} AS came_at,
                known.leased > 0 OR is_paused OR coalesce(w.due_at > now_at, false) OR w.topic = ANY (paused) AS is_blocking
            FROM {{ box.message }} AS w
            WHERE w.id = known.head_id
            OFFSET 0
        ) AS head
        LEFT JOIN LATERAL (
            SELECT w.due_at, w.{{ "first_seen_at" if kind == "inbox" else "created_at" }} AS came_at
            FROM (
                SELECT gm.id
                FROM {{ box.group_member }} AS gm
                WHERE gm.group_id = known.group_id AND gm.id > CASE WHEN known.leased > 0 THEN 0 ELSE known.head_id END
                    AND head.is_blocking
                ORDER BY gm.group_id, gm.id
                LIMIT 1
            ) AS next_member
            INNER JOIN {{ box.message }} AS w ON w.id = next_member.id
            OFFSET 0
        ) AS behind ON true
    )
    SELECT
        s.group_id, s.waiting, s.leased, s.head_id,
{% if kind == "inbox" %}
        'Processing',
{% else %}
        CASE WHEN s.leased > 0 THEN 'InProgress' ELSE 'Ready' END,
{% endif %}
        s.due_at, extract(epoch FROM now_at - s.blocked_at)::double precision
    FROM (
        SELECT state.*, CASE WHEN state.since <= now_at THEN state.since END AS blocked_at FROM state
    ) AS s
    WHERE s.blocked_at IS NOT NULL OR NOT coalesce(only_blocked, false)
    ORDER BY s.blocked_at, s.head_id
    LIMIT "limit";
END;
$$;
