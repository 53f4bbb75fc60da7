{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.release }}(
    owner_token uuid,
    ids bigint[],
    delay_seconds double precision DEFAULT NULL
)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Hands messages back, with no attempt counted, at once or after a delay: a worker that shuts down, changed its mind,
    -- or cannot do this now. A group waits for the delay of its head.
    -- owner_token: not the nil uuid
    -- ids: not null
    -- delay_seconds: from 0 to 1000000000; 0 or null for at once
    -- returns: affected
    -- errors: PB001
    -- locks: group, lease, message
    -- role: worker
DECLARE
    now_at timestamptz;
    gone_ids bigint[];
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000' AND ids IS NOT NULL) IS NOT TRUE THEN
        PERFORM {{ db._check_settling }}(owner_token, ids);
    END IF;
    IF delay_seconds NOT BETWEEN 0 AND 1000000000 THEN
        PERFORM {{ db._reject }}('delay_seconds', 'must be from 0 to 1000000000');
    END IF;
    PERFORM {{ box._lock_groups }}(owner_token, ids);

    WITH gone AS (
        DELETE FROM {{ box.lease }} AS l
        WHERE l.id = ANY (ids) AND l.owner_token = $1
        RETURNING l.id
    )
    SELECT array_agg(gone.id) INTO gone_ids FROM gone;

    IF gone_ids IS NOT NULL THEN
        IF delay_seconds > 0 THEN
{% if kind == "inbox" %}
            -- In key order, like a batch enqueue that renews them.
            {{ queue.lock_in_key_order("gone_ids") }};
{% endif %}
            now_at := {{ db._now }}();
            UPDATE {{ box.message }} AS m
            SET due_at = now_at + make_interval(secs => delay_seconds)
            WHERE m.id = ANY (gone_ids);
        END IF;
        PERFORM {{ box._put_back }}(gone_ids);
    END IF;
    RETURN QUERY SELECT coalesce(cardinality(gone_ids), 0);
END;
$$;
