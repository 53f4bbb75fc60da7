CREATE OR REPLACE FUNCTION {{ db._ledger_check }}(key text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Turns away a key that cannot be one.
    -- returns: none
    -- errors: PB001
    -- locks: none
    -- role: internal
BEGIN
    IF key IS NULL OR key = '' OR length(key) > 512 THEN
        PERFORM {{ db._reject }}('key', 'must have from 1 to 512 characters');
    END IF;
END;
$$;
