CREATE OR REPLACE FUNCTION {{ box.mark_dead }}(message_id text, source text)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Gives a message up by its key, whether it was only seen, waits, or is leased to somebody.
    -- message_id: 1 to 255 characters
    -- source: 1 to 255 characters
    -- returns: affected; 0 if it is unknown, done or dead, or just being claimed
    -- errors: PB001
    -- locks: group, lease, message
    -- role: producer
DECLARE
    taken_id bigint := {{ box._take_by_key }}(message_id, source);
    taken_group text;
BEGIN
    IF taken_id IS NULL THEN
        RETURN QUERY SELECT 0;
        RETURN;
    END IF;
    PERFORM {{ box._bury }}(ARRAY[taken_id], NULL, false);
    SELECT m.group_id INTO taken_group FROM {{ box.message }} AS m WHERE m.id = taken_id;
    IF taken_group IS NOT NULL THEN
        PERFORM {{ box._regroup }}(ARRAY[taken_group]);
    END IF;
    RETURN QUERY SELECT 1;
END;
$$;
