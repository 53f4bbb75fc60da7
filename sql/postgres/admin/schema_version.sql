CREATE OR REPLACE FUNCTION {{ db.schema_version }}()
RETURNS TABLE (version integer)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    -- The version of the tables, as the release that deployed them counts.
    -- A client that knows only lower ones must not work on this schema.
    -- returns: version
    -- errors: none
    -- locks: none
    -- role: producer, viewer
    SELECT max(v.version) FROM {{ db._version }} AS v;
$$;
