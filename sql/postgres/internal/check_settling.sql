-- after: reject
CREATE OR REPLACE FUNCTION {{ db._check_settling }}(owner_token uuid, ids bigint[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Says which argument of a settling call is wrong; callers come here once they know that one is.
    -- returns: none
    -- errors: PB001
    -- locks: none
    -- role: internal
BEGIN
    IF owner_token IS NULL THEN
        PERFORM {{ db._reject }}('owner_token', 'must not be null');
    ELSIF owner_token = '00000000-0000-0000-0000-000000000000' THEN
        PERFORM {{ db._reject }}('owner_token', 'must not be the nil uuid');
    ELSIF ids IS NULL THEN
        PERFORM {{ db._reject }}('ids', 'must not be null');
    END IF;
END;
$$;
