{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.fail }}(owner_token uuid, ids bigint[], error text)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Gives messages up for good: they are dead, with the error, until a replay or a discard.
    -- owner_token: not the nil uuid
    -- ids: not null
    -- error: not null; recorded up to 16384 characters
    -- returns: affected
    -- errors: PB001
    -- locks: group, lease, message
    -- role: worker
DECLARE
    groups text[];
    gone_ids bigint[];
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000' AND ids IS NOT NULL) IS NOT TRUE THEN
        PERFORM {{ db._check_settling }}(owner_token, ids);
    END IF;
    IF error IS NULL THEN
        PERFORM {{ db._reject }}('error', 'must not be null');
    END IF;
    groups := {{ box._lock_groups }}(owner_token, ids);

    WITH gone AS (
        DELETE FROM {{ box.lease }} AS l
        WHERE l.id = ANY (ids) AND l.owner_token = $1
        RETURNING l.id
    )
    SELECT array_agg(gone.id) INTO gone_ids FROM gone;

    IF gone_ids IS NOT NULL THEN
{% if kind == "inbox" %}
        -- In key order, like a batch enqueue that renews them.
        {{ queue.lock_in_key_order("gone_ids") }};
{% endif %}
        PERFORM {{ box._bury }}(gone_ids, error, false);
        IF groups <> '{}' THEN
            PERFORM {{ box._regroup }}(groups);
        END IF;
    END IF;
    RETURN QUERY SELECT coalesce(cardinality(gone_ids), 0);
END;
$$;
