{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._claim_groups }}(groups text[], share integer, allowed text[], paused text[])
RETURNS TABLE (group_id text, id bigint, topic text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Turns tickets of groups, just taken, into the messages at their heads: up to share of each, in order, none
    -- behind one that is waiting. Whoever has the group's row locked may lease its members; nobody waits for it.
    -- groups: whose tickets the caller has taken
    -- allowed: the topics the caller may hand out; null for all
    -- paused: topics that nobody may
    -- returns: group_id, id, topic
    -- errors: none
    -- locks: group, message
    -- role: internal
DECLARE
    now_at timestamptz := {{ db._now }}();
    low_grouped bigint := {{ queue.mark(box._low_grouped) }};
    old_timeout CONSTANT text := current_setting('lock_timeout');
    waiting text[];
    free text[];
    missing text[];
    entered text[];
    searched text[];
    taken bigint[] := '{}';
    topics text[] := '{}';
    owners text[] := '{}';
    blocked text[] := '{}';
    overdue bigint[];
BEGIN
    -- A ticket for a group that somebody holds is one too many.
    waiting := {{ box._surplus }}(groups);
    free := ARRAY(
        SELECT g.group_id
        FROM {{ box.group }} AS g
        WHERE g.group_id = ANY (waiting)
        ORDER BY g.group_id
        FOR NO KEY UPDATE SKIP LOCKED
    );
    -- A group with neither a row nor a member has ended: whoever is just adding to it saw no row either, and brings a
    -- ticket of its own. So this one is simply too many.
    missing := ARRAY(
        SELECT u.group_id
        FROM unnest(waiting) AS u (group_id)
        WHERE u.group_id <> ALL (free)
            AND (
                EXISTS (SELECT FROM {{ box.group_member }} AS gm WHERE gm.group_id = u.group_id AND gm.id >= low_grouped OFFSET 0)
                OR EXISTS (SELECT FROM {{ box.group }} AS e WHERE e.group_id = u.group_id OFFSET 0)
            )
    );
    IF missing <> '{}' THEN
        -- A new group is entered by whoever locks its head. Two who see different heads may still meet in the insert,
        -- where nothing can be skipped, so that waits no longer than a millisecond.
        BEGIN
            PERFORM set_config('lock_timeout', '1ms', true);
            WITH head AS MATERIALIZED (
                SELECT gm.group_id
                FROM {{ box.group_member }} AS gm
                WHERE gm.ctid = ANY (ARRAY(
                    SELECT h.place
                    FROM unnest(missing) AS u (group_id)
                    CROSS JOIN LATERAL (
                        SELECT f.ctid AS place FROM {{ box.group_member }} AS f
                        WHERE f.group_id = u.group_id AND f.id >= low_grouped
                        ORDER BY f.group_id, f.id
                        LIMIT 1
                    ) AS h
                    WHERE NOT EXISTS (SELECT FROM {{ box.group }} AS e WHERE e.group_id = u.group_id OFFSET 0)
                ))
                FOR UPDATE SKIP LOCKED
            ),
            fresh AS (
                INSERT INTO {{ box.group }} AS g (group_id)
                SELECT head.group_id FROM head ORDER BY head.group_id
                ON CONFLICT DO NOTHING
                RETURNING g.group_id
            )
            SELECT array_agg(fresh.group_id) INTO entered FROM fresh;
            PERFORM set_config('lock_timeout', old_timeout, true);
        EXCEPTION
            WHEN lock_not_available THEN entered := NULL;
        END;
        free := free || coalesce(entered, '{}');
        PERFORM {{ box._probe }}(ARRAY(
            SELECT u.group_id FROM unnest(missing) AS u (group_id) WHERE u.group_id <> ALL (free)
        ));
    END IF;

    -- Under the lock it is seen who holds the group: somebody may have claimed it since.
    free := ARRAY(
        SELECT u.group_id FROM unnest(free) AS u (group_id) WHERE NOT {{ queue.is_held("u.group_id") }}
    );
    -- Once for what there is room for, and where only expired ones were found a few times more, for a large set of them.
    searched := free;
    FOR turn IN 1..4 LOOP
        -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
        WITH head AS MATERIALIZED (
            SELECT
                f.group_id, m.id, m.topic, next_member.place, m.is_overdue, NOT m.is_overdue AND m.is_waiting AS is_waiting,
                count(*) FILTER (WHERE NOT m.is_overdue) OVER (PARTITION BY f.group_id ORDER BY m.id) AS share_used
            FROM unnest(searched) AS f (group_id)
            CROSS JOIN LATERAL (
                SELECT gm.id, gm.ctid AS place
                FROM {{ box.group_member }} AS gm
                WHERE gm.group_id = f.group_id AND gm.id >= low_grouped
                ORDER BY gm.group_id, gm.id
                LIMIT CASE turn WHEN 1 THEN share ELSE 1000 END
            ) AS next_member
            CROSS JOIN LATERAL (
                SELECT
                    w.id, w.topic, coalesce(w.expires_at <= now_at, false) AS is_overdue,
                    coalesce(w.due_at > now_at OR w.topic <> ALL (allowed) OR w.topic = ANY (paused), false) AS is_waiting
                FROM {{ box.message }} AS w
                WHERE w.id = next_member.id
                OFFSET 0
            ) AS m
        ),
        -- A member that somebody has locked (a producer who collapses it, a join it is attached to) holds up those behind it.
        locked AS MATERIALIZED (
            SELECT gm.id
            FROM {{ box.group_member }} AS gm
            WHERE gm.ctid = ANY (ARRAY(SELECT head.place FROM head WHERE head.share_used <= share))
            FOR UPDATE SKIP LOCKED
        ),
        reached AS MATERIALIZED (
            SELECT
                head.group_id, head.id, head.topic, head.is_overdue, head.place, locked.id IS NULL AS is_locked,
                bool_or(locked.id IS NULL OR head.is_waiting) OVER (PARTITION BY head.group_id ORDER BY head.id) AS is_behind
            FROM head
            LEFT JOIN locked ON locked.id = head.id
            WHERE head.share_used <= share
        ),
        gone AS (
            DELETE FROM {{ box.group_member }} AS gm
            WHERE gm.ctid = ANY (ARRAY(SELECT reached.place FROM reached WHERE NOT reached.is_behind))
            RETURNING gm.id
        )
        SELECT
            taken || array_agg(reached.id) FILTER (WHERE gone.id IS NOT NULL AND NOT reached.is_overdue),
            topics || array_agg(reached.topic) FILTER (WHERE gone.id IS NOT NULL AND NOT reached.is_overdue),
            owners || array_agg(reached.group_id) FILTER (WHERE gone.id IS NOT NULL AND NOT reached.is_overdue),
            array_agg(reached.id) FILTER (WHERE gone.id IS NOT NULL AND reached.is_overdue),
            array_agg(DISTINCT reached.group_id) FILTER (WHERE gone.id IS NOT NULL AND reached.is_overdue),
            blocked || array_agg(DISTINCT reached.group_id) FILTER (WHERE reached.is_locked)
        INTO taken, topics, owners, overdue, searched, blocked
        FROM reached
        LEFT JOIN gone USING (id);
        EXIT WHEN overdue IS NULL;
        PERFORM {{ box._bury }}(overdue, NULL, true);
        searched := ARRAY(
            SELECT f.group_id FROM unnest(searched) AS f (group_id) WHERE f.group_id <> ALL (owners) AND f.group_id <> ALL (blocked)
        );
        EXIT WHEN searched = '{}';
    END LOOP;

    -- Groups of which nothing may be handed out now keep waiting: for whoever has locked the head, or in the place that
    -- their head calls for.
    waiting := ARRAY(
        SELECT f.group_id FROM unnest(free) AS f (group_id) WHERE f.group_id <> ALL (owners)
    );
    IF waiting <> '{}' THEN
        PERFORM {{ box._probe }}(ARRAY(
            SELECT u.group_id FROM unnest(waiting) AS u (group_id) WHERE u.group_id = ANY (blocked)
        ));
        PERFORM {{ box._regroup }}(ARRAY(
            SELECT u.group_id FROM unnest(waiting) AS u (group_id) WHERE u.group_id <> ALL (blocked)
        ));
    END IF;
    RETURN QUERY SELECT u.group_id, u.id, u.topic FROM unnest(owners, taken, topics) AS u (group_id, id, topic);
END;
$$;
