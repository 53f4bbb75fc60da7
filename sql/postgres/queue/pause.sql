CREATE OR REPLACE FUNCTION {{ box.pause }}(topic text DEFAULT NULL)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Stops handing out messages of a topic; leases that are out stay good.
    -- topic: 1 to 255 characters; null for the whole box
    -- returns: affected; 0 if it was paused already
    -- errors: PB001
    -- locks: none
    -- role: operator
DECLARE
    moved integer;
BEGIN
    IF topic = '' OR length(topic) > 255 THEN
        PERFORM {{ db._reject }}('topic', 'must have from 1 to 255 characters');
    END IF;
    PERFORM setval({{ box._special | literal }}, 1);
    INSERT INTO {{ box.paused }} (topic, paused_at)
    VALUES (coalesce($1, ''), {{ db._now }}())
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN QUERY SELECT moved;
END;
$$;
