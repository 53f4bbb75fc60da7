{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._end_groups }}()
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    -- Removes the rows of some groups that have nothing waiting and nothing leased: whichever stand on a few pages
    -- drawn by lot, so that the cost of a call is the same with a million groups, and repeated calls come to all of them.
    -- returns: none
    -- errors: none
    -- locks: group
    -- role: internal
DECLARE
    low_grouped bigint := {{ queue.mark(box._low_grouped) }};
    size CONSTANT bigint := pg_relation_size({{ box.group | literal }}) / current_setting('block_size')::bigint;
    from_page CONSTANT bigint := floor(random() * greatest(1, size - 31))::bigint;
    from_row CONSTANT tid := ('(' || from_page || ',0)')::tid;
    to_row CONSTANT tid := ('(' || (from_page + 32) || ',0)')::tid;
    idle text[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    idle := ARRAY(
        SELECT g.group_id
        FROM {{ box.group }} AS g
        WHERE g.ctid >= from_row AND g.ctid < to_row
            AND NOT {{ queue.is_held("g.group_id") }}
            AND NOT EXISTS (
                SELECT FROM {{ box.group_member }} AS gm WHERE gm.group_id = g.group_id AND gm.id >= low_grouped OFFSET 0
            )
        FOR UPDATE SKIP LOCKED
    );
    -- Under the lock nobody is adding a member without a ticket of its own; what was added before it shows now.
    DELETE FROM {{ box.group }} AS g
    WHERE g.group_id = ANY (idle)
        AND NOT {{ queue.is_held("g.group_id") }}
        AND NOT EXISTS (
            SELECT FROM {{ box.group_member }} AS gm WHERE gm.group_id = g.group_id AND gm.id >= low_grouped OFFSET 0
        );
END;
$$;
