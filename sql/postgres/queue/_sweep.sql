CREATE OR REPLACE FUNCTION {{ box._sweep }}(lane integer, after_ticket bigint, last_ticket bigint, allowed text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Buries what has expired among the next thousand rows of a lane.
    -- allowed: only of these topics; null for all
    -- returns: none
    -- errors: none
    -- locks: message
    -- role: internal
DECLARE
    now_at timestamptz := {{ db._now }}();
    overdue bigint[];
BEGIN
    WITH gone AS (
        DELETE FROM {{ box.ready }} AS r
        WHERE r.ctid = ANY (ARRAY(
            SELECT e.place
            FROM (
                SELECT w.ctid AS place, w.topic, w.expires_at
                FROM {{ box.ready }} AS w
                WHERE w.lane = $1 AND w.ticket > after_ticket AND w.ticket <= $3
                ORDER BY w.lane, w.ticket
                LIMIT 1000
            ) AS e
            INNER JOIN {{ box.ready }} AS x ON x.ctid = e.place
            WHERE e.expires_at <= now_at AND (allowed IS NULL OR e.topic = ANY (allowed))
            FOR UPDATE OF x SKIP LOCKED
        ))
        RETURNING r.id
    )
    SELECT array_agg(gone.id) INTO overdue FROM gone;
    IF overdue IS NOT NULL THEN
        PERFORM {{ box._bury }}(overdue, NULL, true);
    END IF;
END;
$$;
