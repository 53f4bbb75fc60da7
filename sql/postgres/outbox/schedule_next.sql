CREATE OR REPLACE FUNCTION {{ box.schedule_next }}()
RETURNS TABLE (now_at timestamptz, is_due boolean, next_at timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- What whoever fires schedules looks at again and again: the server's clock, whether any schedule is due or its next
    -- time still to be worked out, and when the next one will be. A few rows of an index; nobody waits, nothing is written.
    -- returns: now_at, is_due, next_at; next_at is after now_at, null if nothing is planned
    -- errors: none
    -- locks: none
    -- role: worker
DECLARE
    read_at CONSTANT timestamptz := {{ db._now }}();
BEGIN
    RETURN QUERY
    SELECT
        read_at,
        EXISTS (SELECT FROM {{ box.schedules }} AS s WHERE s.enabled AND s.next_at IS NULL)
        OR EXISTS (SELECT FROM {{ box.schedules }} AS s WHERE s.enabled AND s.next_at <= read_at),
        (SELECT s.next_at FROM {{ box.schedules }} AS s WHERE s.enabled AND s.next_at > read_at ORDER BY s.next_at LIMIT 1);
END;
$$;
