CREATE OR REPLACE FUNCTION {{ box._cut_runs }}(ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Takes messages out of the runs they wait in. What is left of a run stays where it is, as runs under the numbers of
    -- their own first messages. What another transaction is just taking is passed over, nobody waits.
    -- ids: each once
    -- returns: bigint[]; those taken
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    taken bigint[];
BEGIN
    WITH run AS MATERIALIZED (
        SELECT DISTINCT f.ticket
        FROM unnest(ids) AS u (id)
        CROSS JOIN LATERAL (
            -- The one row that can hold the id: no run is longer than 32, and none overlaps another.
            SELECT r.ticket, r.span
            FROM {{ box.ready }} AS r
            WHERE r.lane = 0 AND r.ticket <= u.id AND r.ticket > u.id - 64 AND r.id = r.ticket
            ORDER BY r.lane DESC, r.ticket DESC
            LIMIT 1
        ) AS f
        WHERE f.span > 1 AND f.ticket + f.span > u.id
    ),
    gone AS (
        DELETE FROM {{ box.ready }} AS r
        WHERE r.ctid = ANY (ARRAY(
            -- Looked up with locks, so in a subquery of its own, whatever the planner knew of the table.
            SELECT f.ctid
            FROM run
            CROSS JOIN LATERAL (
                SELECT c.ctid
                FROM {{ box.ready }} AS c
                WHERE c.lane = 0 AND c.ticket = run.ticket AND c.span > 1
                FOR UPDATE SKIP LOCKED
            ) AS f
        ))
        RETURNING r.id, r.span, r.topic
    ),
    message AS MATERIALIZED (
        SELECT g.id, gone.id AS run_id, gone.topic, u.id IS NOT NULL AS is_wanted
        FROM gone
        CROSS JOIN LATERAL generate_series(gone.id, gone.id + gone.span - 1) AS g (id)
        LEFT JOIN unnest(ids) AS u (id) ON u.id = g.id
    ),
    kept AS (
        INSERT INTO {{ box.ready }} (lane, span, ticket, id, topic)
        SELECT 0, count(*), min(k.id), min(k.id), min(k.topic)
        FROM (
            SELECT message.*, message.id - row_number() OVER (PARTITION BY message.run_id ORDER BY message.id) AS island
            FROM message
            WHERE NOT message.is_wanted
        ) AS k
        GROUP BY k.run_id, k.island
    )
    SELECT array_agg(message.id) INTO taken FROM message WHERE message.is_wanted;
    RETURN coalesce(taken, '{}');
END;
$$;
