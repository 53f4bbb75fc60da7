{% import "macros/queue.sql" as queue with context %}
{# Whether a group has members beside those that are just added. #}
{% macro others_wait(group_id) %}
EXISTS (
                SELECT FROM {{ box.group_member }} AS gm
                WHERE gm.group_id = {{ group_id }} AND gm.id >= low_grouped AND gm.id <> ALL (ids)
                OFFSET 0
            )
{%- endmacro %}
CREATE OR REPLACE FUNCTION {{ box._admit }}(ids bigint[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Gives freshly written messages their first place: ready under a ticket that is their id, scheduled, or member
    -- of their group. A member of a group that is surely looked after, because it is held or others wait already, needs
    -- no ticket; otherwise the first member of each group here puts one out itself. Nobody waits, and a ticket too many is
    -- dropped by the claim that meets it. The caller has drawn the ids, after its xid.
    -- returns: none
    -- errors: none
    -- locks: group
    -- role: internal
DECLARE
    now_at timestamptz := {{ db._now }}();
    low_grouped bigint;
    groups text[];
    known text[] := '{}';
BEGIN
    {{ queue.enter_lanes() }};
    INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic)
    SELECT 0 - m.priority, m.id, m.id, m.expires_at, m.topic
    FROM {{ box.message }} AS m
    WHERE m.id = ANY (ids)
        AND m.group_id IS NULL
        AND (m.due_at IS NULL OR m.due_at <= now_at)
    ORDER BY m.id;

    INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic)
    SELECT m.due_at, m.id, m.id, m.expires_at, 0 - m.priority, m.topic
    FROM {{ box.message }} AS m
    WHERE m.id = ANY (ids)
        AND m.group_id IS NULL
        AND m.due_at > now_at
    ORDER BY m.due_at, m.id;

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
        RETURN;
    END IF;

    {{ queue.arrive() }};
    IF {{ queue.mark(box._grouped) }} = 0 THEN
        PERFORM setval({{ box._grouped | literal }}, 1);
    END IF;
    low_grouped := {{ queue.mark(box._low_grouped) }};

    -- Whoever takes away the last that shows a group to be looked after has to know that nobody is adding to it, which
    -- this lock denies; so what shows after the lock is sure. Under an older snapshot nothing is.
    IF current_setting('transaction_isolation') = 'read committed' THEN
        known := ARRAY(
            SELECT g.group_id
            FROM {{ box.group }} AS g
            WHERE g.group_id = ANY (groups) AND ({{ queue.is_held("g.group_id") }} OR {{ others_wait("g.group_id") }})
            FOR KEY SHARE SKIP LOCKED
        );
        known := ARRAY(
            SELECT u.group_id
            FROM unnest(known) AS u (group_id)
            WHERE {{ queue.is_held("u.group_id") }} OR {{ others_wait("u.group_id") }}
        );
    END IF;
    -- The ticket bears a number of our own, but stands where the group's head calls for, whoever wrote that.
    WITH head AS MATERIALIZED (
        SELECT own.group_id, own.ticket, m.due_at, m.topic, 0 - m.priority AS lane
        FROM (
            SELECT n.group_id, min(n.id) AS ticket
            FROM {{ box.message }} AS n
            WHERE n.id = ANY (ids)
                AND n.group_id IS NOT NULL
                AND n.group_id <> ALL (known)
            GROUP BY n.group_id
        ) AS own
        CROSS JOIN LATERAL (
            SELECT gm.id
            FROM {{ box.group_member }} AS gm
            WHERE gm.group_id = own.group_id AND gm.id >= low_grouped
            ORDER BY gm.group_id, gm.id
            LIMIT 1
        ) AS first_member
        -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
        CROSS JOIN LATERAL (
            SELECT w.due_at, w.topic, w.priority
            FROM {{ box.message }} AS w
            WHERE w.id = first_member.id
            OFFSET 0
        ) AS m
    ),
    later AS (
        INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic, group_id)
        SELECT head.due_at, head.ticket, head.lane, head.topic, head.group_id
        FROM head
        WHERE head.due_at > now_at
    )
    INSERT INTO {{ box.ready }} (lane, ticket, topic, group_id)
    SELECT head.lane, head.ticket, head.topic, head.group_id
    FROM head
    WHERE head.due_at IS NULL OR head.due_at <= now_at
    ORDER BY head.ticket;
END;
$$;
