CREATE OR REPLACE FUNCTION {{ db.schema_place }}()
RETURNS TABLE (place smallint)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    -- The place that the deployment was given, from 0 to 127; null if it has none.
    -- Ids of place N run from (N << 40) + 1, and a message_id that was drawn for one has it in its eleventh byte.
    -- returns: place
    -- errors: none
    -- locks: none
    -- role: producer, viewer
    SELECT max(p.place) FROM {{ db._place }} AS p;
$$;
