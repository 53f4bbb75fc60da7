CREATE OR REPLACE FUNCTION {{ box.resume }}(topic text DEFAULT NULL)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Hands out again what pause has stopped; each topic and the whole box are resumed by themselves.
    -- topic: 1 to 255 characters; null for the whole box
    -- returns: affected; 0 if it was not paused
    -- errors: PB001
    -- locks: none
    -- role: operator
DECLARE
    moved integer;
BEGIN
    IF topic = '' OR length(topic) > 255 THEN
        PERFORM {{ db._reject }}('topic', 'must have from 1 to 255 characters');
    END IF;
    DELETE FROM {{ box.paused }} AS p WHERE p.topic = coalesce($1, '');
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN QUERY SELECT moved;
END;
$$;
