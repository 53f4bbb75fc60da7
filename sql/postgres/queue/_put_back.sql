CREATE OR REPLACE FUNCTION {{ box._put_back }}(ids bigint[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Makes messages wait again that nobody holds any more: the ungrouped at the tail, the grouped as members of
    -- their group, at the place their id gives them.
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    groups text[];
BEGIN
    WITH member AS (
        INSERT INTO {{ box.group_member }} AS gm (group_id, id)
        SELECT m.group_id, m.id
        FROM {{ box.message }} AS m
        WHERE m.id = ANY (ids) AND m.group_id IS NOT NULL
        ORDER BY m.group_id, m.id
        RETURNING gm.group_id
    )
    SELECT array_agg(DISTINCT member.group_id) INTO groups FROM member;

    IF groups IS NULL THEN
        PERFORM {{ box._place }}(ids);
    ELSE
        PERFORM {{ box._place }}(ARRAY(
            SELECT m.id FROM {{ box.message }} AS m WHERE m.id = ANY (ids) AND m.group_id IS NULL
        ));
        PERFORM {{ box._regroup }}(groups);
    END IF;
END;
$$;
