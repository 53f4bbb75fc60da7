CREATE OR REPLACE FUNCTION {{ box.schedule_skip }}(
    name text,
    due_at timestamptz,
    next_at timestamptz,
    cron text DEFAULT NULL,
    timezone text DEFAULT NULL
)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Moves a schedule on as schedule_fire does, without a message: missed times that nobody makes up for, and the first
    -- time of a cron text.
    -- name: not null
    -- due_at: the planned time that is passed over; null for a schedule whose next time was still to be worked out
    -- next_at: not null, after due_at, before the year 9000
    -- cron: what next_at was worked out from; a schedule with another text by now is left alone; null asks for none
    -- timezone: the same for its zone
    -- returns: affected; 0 if it stands elsewhere, is not enabled, of another rule, or gone
    -- errors: PB001
    -- locks: message
    -- role: worker
DECLARE
    moved integer;
BEGIN
    IF name IS NULL THEN
        PERFORM {{ db._reject }}('name', 'must not be null');
    ELSIF next_at IS NULL OR next_at <= due_at OR next_at >= '9000-01-01 00:00:00+00' OR next_at < '0001-01-01 00:00:00+00' THEN
        PERFORM {{ db._reject }}('next_at', 'must be after due_at, and before the year 9000');
    END IF;
    UPDATE {{ box.schedules }} AS s
    SET next_at = $3
    WHERE s.name = $1 AND s.next_at IS NOT DISTINCT FROM $2 AND s.enabled
        AND ($4 IS NULL OR s.cron = $4)
        AND ($5 IS NULL OR s.timezone = $5);
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN QUERY SELECT moved;
END;
$$;
