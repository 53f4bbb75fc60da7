{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._reap }}(batch_size integer)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Takes back up to batch_size leases that have run out, skipping what anybody else has locked. Each counts an
    -- attempt; a message whose attempts thereby reach max_attempts dies, so that one that kills its worker every
    -- time does not come back for ever.
    -- Looks at those whose time was over since the last look, for what was over before that was seen then; and once more
    -- at those that the last look saw, for it may have had to pass some over, or have been rolled back. What is committed
    -- later than its own time a patrol finds. A clock that was set back begins anew.
    -- returns: integer
    -- errors: none
    -- locks: group, lease, message
    -- role: internal
DECLARE
    now_at timestamptz := {{ db._now }}();
    looked timestamptz := {{ queue.time_mark(box._low_lease) }};
    left_at timestamptz := nullif({{ queue.mark(box._left_lease) }}, 0) * interval '1 microsecond' + 'epoch'::timestamptz;
    from_at timestamptz := CASE WHEN looked > now_at THEN '-infinity' ELSE looked - interval '2 seconds' END;
    limit_attempts integer;
    found integer;
    candidates bigint[];
    groups text[];
    locked text[] := '{}';
    gone_ids bigint[];
    dying bigint[];
BEGIN
    IF left_at IS NOT NULL AND NOT EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.locked_until = left_at) THEN
        -- It was taken back, or settled; there may be others, that ended later than this one.
        from_at := least(from_at, left_at);
    END IF;
    SELECT
        count(*), array_agg(c.id), array_agg(DISTINCT c.group_id) FILTER (WHERE c.group_id IS NOT NULL), min(c.locked_until),
        CASE WHEN count(*) = batch_size THEN max(c.locked_until) + interval '2 seconds' ELSE now_at END
    INTO found, candidates, groups, left_at, looked
    FROM (
        SELECT l.id, l.group_id, l.locked_until
        FROM {{ box.lease }} AS l
        WHERE l.locked_until = left_at AND left_at < from_at
        UNION ALL
        SELECT n.*
        FROM (
            SELECT l.id, l.group_id, l.locked_until
            FROM {{ box.lease }} AS l
            WHERE l.locked_until >= from_at AND l.locked_until < now_at
            ORDER BY l.locked_until
            LIMIT batch_size
        ) AS n
        LIMIT batch_size
    ) AS c;
    PERFORM
        setval({{ box._low_lease | literal }}, (extract(epoch FROM least(looked, now_at)) * 1000000)::bigint),
        setval({{ box._left_lease | literal }}, coalesce((extract(epoch FROM left_at) * 1000000)::bigint, 0));
    IF found = 0 THEN
        RETURN 0;
    END IF;
    IF groups IS NOT NULL THEN
        locked := ARRAY(
            SELECT g.group_id
            FROM {{ box.group }} AS g
            WHERE g.group_id = ANY (groups)
            ORDER BY g.group_id
            FOR NO KEY UPDATE SKIP LOCKED
        );
    END IF;

    WITH gone AS (
        DELETE FROM {{ box.lease }} AS l
        WHERE l.ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM {{ box.lease }} AS c
            INNER JOIN {{ box.message }} AS m ON m.id = c.id
            WHERE c.id = ANY (candidates)
                AND c.locked_until < now_at
                -- A group without a row nobody can hold.
                AND (
                    c.group_id IS NULL
                    OR c.group_id = ANY (locked)
                    OR NOT EXISTS (SELECT FROM {{ box.group }} AS g WHERE g.group_id = c.group_id OFFSET 0)
                )
            ORDER BY c.id
            FOR UPDATE OF c, m SKIP LOCKED
        ))
        RETURNING l.id
    )
    SELECT array_agg(gone.id) INTO gone_ids FROM gone;
    IF gone_ids IS NULL THEN
        RETURN 0;
    END IF;

    SELECT s.value::integer INTO limit_attempts FROM {{ box.settings }} AS s WHERE s.name = 'max_attempts';
    WITH tried AS (
        UPDATE {{ box.message }} AS m
        SET attempt = m.attempt + 1
        WHERE m.id = ANY (gone_ids)
        RETURNING m.id, m.attempt
    )
    SELECT array_agg(tried.id) INTO dying
    FROM tried
    WHERE limit_attempts > 0 AND tried.attempt >= limit_attempts;

    IF dying IS NOT NULL THEN
        PERFORM {{ box._bury }}(
            dying, 'the lease expired and the attempts reached max_attempts (' || limit_attempts || ')', false);
    END IF;
    PERFORM {{ box._put_back }}(ARRAY(
        SELECT u.id FROM unnest(gone_ids) AS u (id) WHERE u.id <> ALL (coalesce(dying, '{}'))
    ));
    IF locked <> '{}' THEN
        PERFORM {{ box._regroup }}(locked);
    END IF;
    RETURN cardinality(gone_ids);
END;
$$;
