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
    groups := ARRAY(
        SELECT DISTINCT l.group_id
        FROM unnest(ids) AS u (id)
        -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the table when it made the plan.
        CROSS JOIN LATERAL (SELECT c.owner_token, c.group_id FROM {{ box.lease }} AS c WHERE c.id = u.id OFFSET 0) AS l
        WHERE l.owner_token = $1 AND l.group_id IS NOT NULL
    );
    IF groups <> '{}' THEN
        PERFORM FROM {{ box.group }} AS g
        WHERE g.group_id = ANY (groups)
        ORDER BY g.group_id
        FOR NO KEY UPDATE;
    END IF;
    RETURN groups;
END;
$$;
