CREATE OR REPLACE FUNCTION {{ box.extend }}(owner_token uuid, ids bigint[], lease_seconds integer)
RETURNS TABLE (id bigint, locked_until timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Prolongs leases from now on, and names those that are still this owner's; whatever is missing is lost.
    -- owner_token: not the nil uuid
    -- ids: not null
    -- lease_seconds: from 1 to 86400
    -- returns: id, locked_until; in id order
    -- errors: PB001
    -- locks: lease
    -- role: worker
DECLARE
    until_at timestamptz;
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000' AND ids IS NOT NULL) IS NOT TRUE THEN
        PERFORM {{ db._check_settling }}(owner_token, ids);
    END IF;
    IF lease_seconds IS NULL OR lease_seconds NOT BETWEEN 1 AND 86400 THEN
        PERFORM {{ db._reject }}('lease_seconds', 'must be from 1 to 86400');
    END IF;
    PERFORM FROM {{ box.lease }} AS l
    WHERE l.id = ANY (ids) AND l.owner_token = $1
    ORDER BY l.id
    FOR UPDATE;
    until_at := {{ db._now }}() + make_interval(secs => lease_seconds);

    RETURN QUERY
    WITH kept AS (
        UPDATE {{ box.lease }} AS l
        SET locked_until = until_at
        WHERE l.id = ANY (ids) AND l.owner_token = $1
        RETURNING l.id
    )
    SELECT kept.id, until_at FROM kept ORDER BY kept.id;
END;
$$;
