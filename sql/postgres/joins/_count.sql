CREATE OR REPLACE FUNCTION {{ db._join_count }}(ids bigint[], state text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Counts messages that have just come to their end as steps of their joins: one row a join in the log, and one
    -- probe, by which the next claim looks whether the join is complete. Neither waits for anybody.
    -- The caller has taken the messages in an earlier statement. Whoever attaches one of them at the same time either
    -- committed before that, and the step is seen here, or finds the message at its end.
    -- ids: those really moved, without repeats
    -- state: completed or failed
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    -- Every caller has counted the messages in a tally, and with that drawn a number: the low marks rest on the clock
    -- being read after it.
    now_at CONSTANT timestamptz := {{ db._now }}();
BEGIN
    WITH step AS MATERIALIZED (
        SELECT jm.join_id, count(*)::integer AS steps
        FROM (SELECT DISTINCT i.id FROM unnest(ids) AS i (id)) AS u
        -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the table when it made the plan.
        CROSS JOIN LATERAL (
            SELECT n.join_id FROM {{ db.join_member }} AS n WHERE n.id = u.id AND n.counted IS NULL OFFSET 0
        ) AS jm
        GROUP BY jm.join_id
    ),
    tallied AS (
        INSERT INTO {{ db.join_tally }} (join_id, completed, failed, created_at)
        SELECT
            step.join_id,
            CASE state WHEN 'completed' THEN step.steps ELSE 0 END,
            CASE state WHEN 'failed' THEN step.steps ELSE 0 END,
            now_at
        FROM step
    )
    INSERT INTO {{ db.outbox_scheduled }} (due_at, no, lane, topic, join_id, probe_xid)
    SELECT now_at, nextval({{ db._outbox_ids | literal }}), 0, '', step.join_id, pg_current_xact_id()
    FROM step;
END;
$$;
