CREATE OR REPLACE FUNCTION {{ box._claim_groups }}(groups text[], share integer, allowed text[])
RETURNS TABLE (group_id text, id bigint, topic text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Turns tickets of groups, just taken, into the messages at their heads: up to share of each, in order, none
    -- behind one that is waiting. Whoever has the group's row locked may lease its members; nobody waits for it.
    -- groups: whose tickets the caller has taken
    -- allowed: the topics the caller may hand out; null for all
    -- returns: group_id, id, topic
    -- errors: none
    -- locks: group, message
    -- role: internal
DECLARE
    now_at timestamptz := {{ db._now }}();
    box_key CONSTANT integer := hashtext({{ (schema ~ "." ~ box_name) | literal }});
    held text[];
    missing text[];
    entered text[];
    free text[];
    taken bigint[];
    topics text[];
    owners text[];
    overdue bigint[];
BEGIN
    held := ARRAY(
        SELECT g.group_id
        FROM {{ box.group }} AS g
        WHERE g.group_id = ANY (groups)
        ORDER BY g.group_id
        FOR NO KEY UPDATE SKIP LOCKED
    );
    -- A group with neither a row nor a member has ended: whoever is just adding to it saw no row either, and brings a
    -- ticket of its own. So this one is simply too many.
    missing := ARRAY(
        SELECT DISTINCT u.group_id
        FROM unnest(groups) AS u (group_id)
        WHERE u.group_id <> ALL (held)
            AND (
                EXISTS (SELECT FROM {{ box.group_member }} AS gm WHERE gm.group_id = u.group_id OFFSET 0)
                OR EXISTS (SELECT FROM {{ box.group }} AS e WHERE e.group_id = u.group_id OFFSET 0)
            )
    );
    IF missing <> '{}' THEN
        -- A new group is entered under an advisory lock, since an insert cannot skip a row that another inserts.
        -- At most 200 of them a claim: every lock takes a place in shared memory.
        WITH fresh AS (
            INSERT INTO {{ box.group }} AS g (group_id)
            SELECT u.group_id
            FROM unnest(missing[1:200]) AS u (group_id)
            WHERE NOT EXISTS (SELECT FROM {{ box.group }} AS e WHERE e.group_id = u.group_id OFFSET 0)
                AND pg_try_advisory_xact_lock(box_key, hashtext(u.group_id))
            ORDER BY u.group_id
            ON CONFLICT DO NOTHING
            RETURNING g.group_id
        )
        SELECT array_agg(fresh.group_id) INTO entered FROM fresh;
        held := held || coalesce(entered, '{}');
        PERFORM {{ box._probe }}(ARRAY(
            SELECT u.group_id FROM unnest(missing) AS u (group_id) WHERE u.group_id <> ALL (held)
        ));
    END IF;

    -- A ticket for a group that somebody holds is one too many: settling the group puts out the next.
    free := ARRAY(
        SELECT u.group_id
        FROM unnest(held) AS u (group_id)
        WHERE NOT EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.group_id = u.group_id OFFSET 0)
    );
    -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
    WITH head AS MATERIALIZED (
        SELECT
            f.group_id, m.id, m.topic, next_member.place,
            coalesce(m.expires_at <= now_at, false) AS is_overdue,
            coalesce(m.due_at > now_at OR m.topic <> ALL (allowed), false) AS is_waiting
        FROM unnest(free) AS f (group_id)
        CROSS JOIN LATERAL (
            SELECT gm.id, gm.ctid AS place
            FROM {{ box.group_member }} AS gm
            WHERE gm.group_id = f.group_id
            ORDER BY gm.id
            LIMIT share
        ) AS next_member
        CROSS JOIN LATERAL (
            SELECT w.id, w.topic, w.expires_at, w.due_at
            FROM {{ box.message }} AS w
            WHERE w.id = next_member.id
            OFFSET 0
        ) AS m
    ),
    -- A member that a producer is just collapsing holds up those behind it.
    locked AS MATERIALIZED (
        SELECT gm.id
        FROM {{ box.group_member }} AS gm
        WHERE gm.ctid = ANY (ARRAY(SELECT head.place FROM head))
        FOR UPDATE SKIP LOCKED
    ),
    reached AS MATERIALIZED (
        SELECT
            head.group_id, head.id, head.topic, head.is_overdue, head.place,
            bool_or(locked.id IS NULL OR (head.is_waiting AND NOT head.is_overdue))
                OVER (PARTITION BY head.group_id ORDER BY head.id) AS is_behind
        FROM head
        LEFT JOIN locked ON locked.id = head.id
    ),
    gone AS (
        DELETE FROM {{ box.group_member }} AS gm
        WHERE gm.ctid = ANY (ARRAY(SELECT reached.place FROM reached WHERE NOT reached.is_behind))
        RETURNING gm.id
    )
    SELECT
        array_agg(reached.id) FILTER (WHERE NOT reached.is_overdue),
        array_agg(reached.topic) FILTER (WHERE NOT reached.is_overdue),
        array_agg(reached.group_id) FILTER (WHERE NOT reached.is_overdue),
        array_agg(reached.id) FILTER (WHERE reached.is_overdue)
    INTO taken, topics, owners, overdue
    FROM gone
    INNER JOIN reached USING (id);

    IF overdue IS NOT NULL THEN
        PERFORM {{ box._bury }}(overdue, NULL, true);
    END IF;
    -- Groups whose head may not be handed out now keep waiting, each in the place its head calls for.
    free := ARRAY(
        SELECT f.group_id FROM unnest(free) AS f (group_id) WHERE f.group_id <> ALL (coalesce(owners, '{}'))
    );
    IF free <> '{}' THEN
        PERFORM {{ box._regroup }}(free);
    END IF;
    RETURN QUERY SELECT u.group_id, u.id, u.topic FROM unnest(owners, taken, topics) AS u (group_id, id, topic);
END;
$$;
