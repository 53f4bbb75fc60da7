{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.reschedule }}(ids bigint[], due_at timestamptz DEFAULT NULL)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Gives waiting messages a new due time, whether they had to wait for one or not. One that thereby becomes claimable
    -- queues behind those that are so already; one that is claimable and stays so keeps its place, and so does a member
    -- within its group, which waits for the time of its head.
    -- What is leased or over is passed over, and so is what another transaction is just claiming or moving: nobody waits.
    -- ids: not null
    -- due_at: null or past is now
    -- returns: affected
    -- errors: PB001
    -- locks: group, message
    -- role: operator
DECLARE
    new_due CONSTANT timestamptz := due_at;
    now_at timestamptz;
    wanted CONSTANT bigint[] := ARRAY(SELECT DISTINCT u.id FROM unnest(ids) AS u (id) WHERE u.id IS NOT NULL);
    members bigint[];
    groups text[];
    kept bigint[] := '{}';
    moved bigint[];
    runs bigint[] := '{}';
    changed bigint[];
BEGIN
    IF ids IS NULL THEN
        PERFORM {{ db._reject }}('ids', 'must not be null');
    ELSIF due_at < '0001-01-01 00:00:00+00' OR due_at >= '10000-01-01 00:00:00+00' THEN
        PERFORM {{ db._reject }}('due_at', 'must be of the years 1 to 9999');
    END IF;
    {{ queue.touch() }};
    now_at := {{ db._now }}();

    -- Each is locked in its place, or taken out of it, before anything is written about it. What is looked up with locks
    -- is so in a subquery of its own, whatever the planner knew of the tables when it made the plan.
    members := ARRAY(
        SELECT f.id
        FROM {{ box.message }} AS m
        CROSS JOIN LATERAL (
            SELECT gm.id
            FROM {{ box.group_member }} AS gm
            WHERE gm.group_id = m.group_id AND gm.id = m.id
            FOR UPDATE SKIP LOCKED
        ) AS f
        WHERE m.id = ANY (wanted)
    );
    moved := ARRAY(SELECT m.id FROM {{ box.message }} AS m WHERE m.id = ANY (wanted) AND m.group_id IS NULL);
    IF new_due > now_at THEN
        runs := {{ box._cut_runs }}(moved);
    ELSE
        kept := ARRAY(
            SELECT m.id
            FROM {{ box.message }} AS m
            CROSS JOIN LATERAL (
                (
                    SELECT f.lane, f.ticket FROM {{ box.ready }} AS f
                    WHERE f.lane = 0 - m.priority AND f.ticket <= m.id AND f.ticket > m.id - 64
                        AND f.id = f.ticket AND f.id + f.span > m.id
                    ORDER BY f.lane DESC, f.ticket DESC
                    LIMIT 1
                )
                UNION ALL
                SELECT b.lane, b.ticket FROM {{ box.ready }} AS b WHERE b.id = m.id AND b.ticket <> b.id
            ) AS c
            CROSS JOIN LATERAL (
                SELECT FROM {{ box.ready }} AS r WHERE r.lane = c.lane AND r.ticket = c.ticket FOR UPDATE SKIP LOCKED
            ) AS r
            WHERE m.id = ANY (moved)
        );
    END IF;
    moved := {{ box._withdraw }}(ARRAY(SELECT unnest(moved) EXCEPT SELECT unnest(runs || kept))) || runs;

    changed := members || moved || CASE WHEN new_due IS NOT NULL THEN kept ELSE '{}' END;
{% if kind == "inbox" %}
    -- In key order, like a batch enqueue that renews them.
    {{ queue.lock_in_key_order("changed") }};
{% endif %}
    UPDATE {{ box.message }} AS m SET due_at = coalesce(new_due, now_at) WHERE m.id = ANY (changed);
    IF moved <> '{}' THEN
        PERFORM {{ box._place }}(moved);
    END IF;
    IF members <> '{}' THEN
        groups := ARRAY(SELECT DISTINCT m.group_id FROM {{ box.message }} AS m WHERE m.id = ANY (members));
        PERFORM {{ box._regroup }}(groups);
    END IF;
    RETURN QUERY SELECT cardinality(members) + cardinality(moved) + cardinality(kept);
END;
$$;
