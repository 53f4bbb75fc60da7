CREATE OR REPLACE FUNCTION {{ box._check_key }}(message_id text, source text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Turns away a key that no message can have.
    -- message_id: 1 to 255 characters
    -- source: 1 to 255 characters
    -- returns: none
    -- errors: PB001
    -- locks: none
    -- role: internal
BEGIN
    IF message_id IS NULL OR message_id = '' THEN
        PERFORM {{ db._reject }}('message_id', 'must not be null or empty');
    ELSIF length(message_id) > 255 THEN
        PERFORM {{ db._reject }}('message_id', 'must not be longer than 255 characters');
    ELSIF source IS NULL OR source = '' THEN
        PERFORM {{ db._reject }}('source', 'must not be null or empty');
    ELSIF length(source) > 255 THEN
        PERFORM {{ db._reject }}('source', 'must not be longer than 255 characters');
    END IF;
END;
$$;
