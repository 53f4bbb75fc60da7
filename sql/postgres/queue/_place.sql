{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._place }}(ids bigint[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Puts ungrouped messages, held by nobody, at the tail of what is ready or among what is scheduled.
    -- The caller has written before, so that its transaction has an xid when the tickets are drawn.
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    now_at timestamptz;
BEGIN
    {{ queue.touch() }};
    now_at := {{ db._now }}();
    {{ queue.enter_lanes() }};
    INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic)
    SELECT p.lane, nextval({{ box._ids | literal }}), p.id, p.expires_at, p.topic
    FROM (
        SELECT 0 - m.priority AS lane, m.id, m.expires_at, m.topic
        FROM {{ box.message }} AS m
        WHERE m.id = ANY (ids)
            AND (m.due_at IS NULL OR m.due_at <= now_at)
        ORDER BY m.id
    ) AS p;

    INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic)
    SELECT m.due_at, m.id, m.id, m.expires_at, 0 - m.priority, m.topic
    FROM {{ box.message }} AS m
    WHERE m.id = ANY (ids)
        AND m.due_at > now_at
    ORDER BY m.id;
END;
$$;
