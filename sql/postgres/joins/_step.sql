CREATE OR REPLACE FUNCTION {{ db._join_step }}(join_id uuid, state text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Counts one step that the caller has marked as counted.
    -- state: completed or failed
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
BEGIN
    INSERT INTO {{ db.join_tally }} (join_id, completed, failed, created_at)
    VALUES (
        $1, CASE state WHEN 'completed' THEN 1 ELSE 0 END, CASE state WHEN 'failed' THEN 1 ELSE 0 END, {{ db._now }}()
    );
    PERFORM {{ db._join_nudge }}($1);
END;
$$;
