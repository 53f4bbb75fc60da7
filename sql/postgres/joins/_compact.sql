CREATE OR REPLACE FUNCTION {{ db._join_compact }}(join_id uuid)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Adds a join's rows in the log to its own counters. The caller has locked the join.
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
BEGIN
    WITH gone AS (
        DELETE FROM {{ db.join_tally }} AS t
        WHERE t.join_id = $1
        RETURNING t.completed, t.failed, t.created_at
    )
    UPDATE {{ db.join }} AS j
    SET
        completed_steps = j.completed_steps + g.completed,
        failed_steps = j.failed_steps + g.failed,
        last_updated_at = greatest(j.last_updated_at, g.last_at)
    FROM (
        SELECT sum(gone.completed) AS completed, sum(gone.failed) AS failed, max(gone.created_at) AS last_at FROM gone
    ) AS g
    WHERE j.join_id = $1 AND g.last_at IS NOT NULL;
END;
$$;
