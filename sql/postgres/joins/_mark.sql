CREATE OR REPLACE FUNCTION {{ db._join_mark }}(ids bigint[], state text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Keeps what became of steps whose messages are leaving the place that told it. They were counted when they came
    -- there, and this is what keeps them from being counted again.
    -- state: completed or failed
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
BEGIN
    -- Looked up with locks, so in a subquery of its own, whatever the planner knew of the table; and in the order of the
    -- ids, for others mark several too, and wait.
    UPDATE {{ db.join_member }} AS jm
    SET counted = state
    WHERE jm.ctid = ANY (ARRAY(
        SELECT f.ctid
        FROM (SELECT i.id FROM unnest(ids) AS i (id) ORDER BY i.id) AS u
        CROSS JOIN LATERAL (
            SELECT n.ctid FROM {{ db.join_member }} AS n WHERE n.id = u.id AND n.counted IS NULL FOR NO KEY UPDATE
        ) AS f
    ));
END;
$$;
