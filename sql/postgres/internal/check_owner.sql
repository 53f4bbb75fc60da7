-- after: reject
CREATE OR REPLACE FUNCTION {{ db._check_owner }}(owner_token uuid, lease_seconds integer, batch_size integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Says which of a worker's arguments is wrong; callers come here once they know that one is.
    -- returns: none
    -- errors: PB001
    -- locks: none
    -- role: internal
BEGIN
    IF owner_token IS NULL THEN
        PERFORM {{ db._reject }}('owner_token', 'must not be null');
    ELSIF owner_token = '00000000-0000-0000-0000-000000000000' THEN
        PERFORM {{ db._reject }}('owner_token', 'must not be the nil uuid');
    ELSIF lease_seconds IS NULL OR lease_seconds NOT BETWEEN 1 AND 86400 THEN
        PERFORM {{ db._reject }}('lease_seconds', 'must be from 1 to 86400');
    ELSIF batch_size IS NULL OR batch_size NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('batch_size', 'must be from 1 to 10000');
    END IF;
END;
$$;
