CREATE OR REPLACE FUNCTION {{ box.release }}(owner_token uuid, ids bigint[])
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Hands messages back at once, with no attempt counted: a worker that shuts down, or changed its mind.
    -- owner_token: not the nil uuid
    -- ids: not null
    -- returns: affected
    -- errors: PB001
    -- locks: group, lease
    -- role: worker
DECLARE
    gone_ids bigint[];
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000' AND ids IS NOT NULL) IS NOT TRUE THEN
        PERFORM {{ db._check_settling }}(owner_token, ids);
    END IF;
    PERFORM {{ box._lock_groups }}(owner_token, ids);

    WITH gone AS (
        DELETE FROM {{ box.lease }} AS l
        WHERE l.id = ANY (ids) AND l.owner_token = $1
        RETURNING l.id
    )
    SELECT array_agg(gone.id) INTO gone_ids FROM gone;

    IF gone_ids IS NOT NULL THEN
        PERFORM {{ box._put_back }}(gone_ids);
    END IF;
    RETURN QUERY SELECT coalesce(cardinality(gone_ids), 0);
END;
$$;
