CREATE OR REPLACE FUNCTION {{ db.schema_boxes }}()
RETURNS TABLE (name text, kind text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    -- The boxes of this deployment.
    -- returns: name, kind; the default ones first, then by name
    -- errors: none
    -- locks: none
    -- role: producer, viewer
    SELECT b.name, b.kind
    FROM {{ db._box }} AS b
    ORDER BY CASE b.name WHEN 'outbox' THEN 1 WHEN 'inbox' THEN 2 ELSE 3 END, b.name;
$$;
