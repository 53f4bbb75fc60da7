-- after: reject
CREATE OR REPLACE FUNCTION {{ db._check_cleanup }}(retention_seconds double precision, batch_size integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Turns away wrong arguments of a cleanup.
    -- returns: none
    -- errors: PB001
    -- locks: none
    -- role: internal
BEGIN
    IF retention_seconds IS NULL OR retention_seconds NOT BETWEEN 0 AND 1000000000 THEN
        PERFORM {{ db._reject }}('retention_seconds', 'must be from 0 to 1000000000');
    ELSIF batch_size IS NULL OR batch_size NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('batch_size', 'must be from 1 to 10000');
    END IF;
END;
$$;
