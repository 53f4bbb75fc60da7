CREATE OR REPLACE FUNCTION {{ db._reject }}(argument text, rule text)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Raises an invalid argument. Names the argument and the rule it broke, never what was in it.
    -- returns: boolean; never, it raises
    -- errors: PB001
    -- locks: none
    -- role: internal
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'PB001', MESSAGE = argument || ': ' || rule;
END;
$$;
