CREATE OR REPLACE FUNCTION {{ box._withdraw }}(ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Takes messages out of where they wait: ready (but no runs), scheduled or a group. A message waits in exactly one place, and
    -- whoever takes its row there has it; what another transaction is just taking is passed over, nobody waits.
    -- returns: bigint[]; those taken
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    taken bigint[];
BEGIN
    -- Each is looked up with locks, so in a subquery of its own: whatever the planner knew of the tables when it made the
    -- plan, it reads as many rows as there are messages here.
    WITH place AS MATERIALIZED (
        SELECT m.id, 0 - m.priority AS lane, m.due_at, m.group_id
        FROM {{ box.message }} AS m
        WHERE m.id = ANY (ids)
    ),
    fresh AS (
        DELETE FROM {{ box.ready }} AS r
        WHERE r.ctid = ANY (ARRAY(
            SELECT f.ctid
            FROM place
            CROSS JOIN LATERAL (
                SELECT c.ctid
                FROM {{ box.ready }} AS c
                WHERE c.lane = place.lane AND c.ticket = place.id AND c.id = place.id AND c.span = 1
                FOR UPDATE SKIP LOCKED
            ) AS f
        ))
        RETURNING r.id
    ),
    returned AS (
        DELETE FROM {{ box.ready }} AS r
        WHERE r.ctid = ANY (ARRAY(
            SELECT f.ctid
            FROM place
            CROSS JOIN LATERAL (
                SELECT c.ctid FROM {{ box.ready }} AS c WHERE c.id = place.id AND c.ticket <> c.id FOR UPDATE SKIP LOCKED
            ) AS f
        ))
        RETURNING r.id
    ),
    later AS (
        DELETE FROM {{ box.scheduled }} AS s
        WHERE s.ctid = ANY (ARRAY(
            SELECT f.ctid
            FROM place
            CROSS JOIN LATERAL (
                SELECT c.ctid
                FROM {{ box.scheduled }} AS c
                WHERE c.due_at = place.due_at AND c.no = place.id AND c.id = place.id
                FOR UPDATE SKIP LOCKED
            ) AS f
        ))
        RETURNING s.id
    ),
    member AS (
        DELETE FROM {{ box.group_member }} AS gm
        WHERE gm.ctid = ANY (ARRAY(
            SELECT f.ctid
            FROM place
            CROSS JOIN LATERAL (
                SELECT c.ctid
                FROM {{ box.group_member }} AS c
                WHERE c.group_id = place.group_id AND c.id = place.id
                FOR UPDATE SKIP LOCKED
            ) AS f
        ))
        RETURNING gm.id
    )
    SELECT array_agg(u.id) INTO taken
    FROM (
        SELECT fresh.id FROM fresh
        UNION ALL
        SELECT returned.id FROM returned
        UNION ALL
        SELECT later.id FROM later
        UNION ALL
        SELECT member.id FROM member
    ) AS u;
    RETURN coalesce(taken, '{}');
END;
$$;
