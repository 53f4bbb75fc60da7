CREATE OR REPLACE FUNCTION {{ box.schedule_remove }}(name text)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Removes a schedule. What it has enqueued stays.
    -- name: not null
    -- returns: affected; 1
    -- errors: PB001, PB002
    -- locks: message
    -- role: operator
DECLARE
    moved integer;
BEGIN
    IF name IS NULL THEN
        PERFORM {{ db._reject }}('name', 'must not be null');
    END IF;
    DELETE FROM {{ box.schedules }} AS s WHERE s.name = $1;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved = 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'name: no such schedule; schedule_list shows those there are';
    END IF;
    RETURN QUERY SELECT moved;
END;
$$;
