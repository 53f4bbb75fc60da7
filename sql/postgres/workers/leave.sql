CREATE OR REPLACE FUNCTION {{ db.worker_leave }}(owner_token uuid)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- A worker says that it ends: it is seen no more.
    -- owner_token: what it claimed by; not the nil uuid
    -- returns: affected; 0 if it was not known
    -- errors: PB001
    -- locks: none
    -- role: worker
DECLARE
    gone integer;
BEGIN
    IF owner_token IS NULL OR owner_token = '00000000-0000-0000-0000-000000000000' THEN
        PERFORM {{ db._reject }}('owner_token', 'must not be null or the nil uuid');
    END IF;
    DELETE FROM {{ db.worker }} AS w
    WHERE w.owner_token = $1;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN QUERY SELECT gone;
END;
$$;
