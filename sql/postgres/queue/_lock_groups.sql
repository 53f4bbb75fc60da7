CREATE OR REPLACE FUNCTION {{ box._lock_groups }}(owner_token uuid, ids bigint[])
RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Locks the groups of these leased messages, before their leases are touched, and names them.
    -- returns: text[]
    -- errors: none
    -- locks: group
    -- role: internal
DECLARE
    groups text[];
BEGIN
    -- A condition on the group would let a plan that was made while there were few leases read those of all groups.
    groups := array_remove(ARRAY(
        SELECT DISTINCT l.group_id FROM {{ box.lease }} AS l WHERE l.id = ANY (ids) AND l.owner_token = $1
    ), NULL);
    IF groups <> '{}' THEN
        PERFORM FROM {{ box.group }} AS g
        WHERE g.group_id = ANY (groups)
        ORDER BY g.group_id
        FOR NO KEY UPDATE;
    END IF;
    RETURN groups;
END;
$$;
