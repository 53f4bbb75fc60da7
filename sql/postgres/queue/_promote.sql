CREATE OR REPLACE FUNCTION {{ box._promote }}(room integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Moves up to room messages and groups whose time has come to the tail of what is ready, earliest first.
    -- returns: none
    -- errors: none
    -- locks: group
    -- role: internal
DECLARE
    now_at timestamptz := {{ db._now }}();
    from_at timestamptz := to_timestamp((SELECT s.last_value FROM {{ box._low_due }} AS s) / 1000000.0);
    groups text[];
BEGIN
    WITH due AS (
        DELETE FROM {{ box.scheduled }} AS s
        WHERE s.ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM {{ box.scheduled }} AS c
            WHERE c.due_at >= from_at AND c.due_at <= now_at
            ORDER BY c.due_at, c.no
            LIMIT room
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING s.due_at, s.no, s.id, s.expires_at, s.lane, s.topic, s.group_id
    ),
    moved AS (
        INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic)
        SELECT d.lane, nextval({{ box._ids | literal }}), d.id, d.expires_at, d.topic
        FROM (SELECT due.* FROM due WHERE due.id IS NOT NULL ORDER BY due.due_at, due.no) AS d
    )
    SELECT array_agg(DISTINCT due.group_id) INTO groups
    FROM due
    WHERE due.group_id IS NOT NULL;

    IF groups IS NOT NULL THEN
        PERFORM {{ box._regroup }}(groups);
    END IF;
END;
$$;
