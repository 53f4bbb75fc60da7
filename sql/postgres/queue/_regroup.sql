CREATE OR REPLACE FUNCTION {{ box._regroup }}(groups text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Gives each of these groups that nobody holds the ticket it is due: now, or when its head's time comes. A group
    -- without members ends. A ticket too many is harmless (a claim drops it), one too few loses messages: so where a
    -- producer may still be adding a member unseen, or the snapshot is an old one, the group is probed later instead.
    -- returns: none
    -- errors: none
    -- locks: group
    -- role: internal
DECLARE
    now_at timestamptz := {{ db._now }}();
    fresh boolean := current_setting('transaction_isolation') = 'read committed';
    unsure text[];
    locked text[];
BEGIN
    IF NOT fresh THEN
        PERFORM {{ box._probe }}(groups);
        RETURN;
    END IF;

    -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
    WITH free AS MATERIALIZED (
        SELECT g.group_id, m.id, m.due_at, m.topic, -m.priority AS lane
        FROM unnest(groups) AS g (group_id)
        LEFT JOIN LATERAL (
            SELECT gm.id
            FROM {{ box.group_member }} AS gm
            WHERE gm.group_id = g.group_id
            ORDER BY gm.id
            LIMIT 1
        ) AS head ON true
        LEFT JOIN LATERAL (
            SELECT w.id, w.due_at, w.topic, w.priority
            FROM {{ box.message }} AS w
            WHERE w.id = head.id
            OFFSET 0
        ) AS m ON true
        WHERE NOT EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.group_id = g.group_id OFFSET 0)
    ),
    now_ready AS (
        INSERT INTO {{ box.ready }} (lane, ticket, topic, group_id)
        SELECT f.lane, nextval({{ box._ids | literal }}), f.topic, f.group_id
        FROM (
            SELECT free.lane, free.topic, free.group_id
            FROM free
            WHERE free.id IS NOT NULL AND (free.due_at IS NULL OR free.due_at <= now_at)
            ORDER BY free.id
        ) AS f
    )
    SELECT array_agg(free.group_id) INTO unsure
    FROM free
    WHERE free.id IS NULL OR free.due_at > now_at;

    IF unsure IS NULL THEN
        RETURN;
    END IF;

    -- Nobody can be adding a member under this lock without putting out a ticket; what was added before it shows now,
    -- and may have to go before the member that waits for its time.
    locked := ARRAY(
        SELECT g.group_id
        FROM {{ box.group }} AS g
        WHERE g.group_id = ANY (unsure)
        ORDER BY g.group_id
        FOR UPDATE SKIP LOCKED
    );
    DELETE FROM {{ box.group }} AS g
    WHERE g.group_id = ANY (locked)
        AND NOT EXISTS (SELECT FROM {{ box.group_member }} AS gm WHERE gm.group_id = g.group_id);

    -- Of a group without a row every producer puts out a ticket itself.
    INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic, group_id)
    SELECT greatest(m.due_at, now_at), nextval({{ box._ids | literal }}), -m.priority, m.topic, u.group_id
    FROM unnest(unsure) AS u (group_id)
    CROSS JOIN LATERAL (
        SELECT gm.id
        FROM {{ box.group_member }} AS gm
        WHERE gm.group_id = u.group_id
        ORDER BY gm.id
        LIMIT 1
    ) AS head
    CROSS JOIN LATERAL (
        SELECT w.due_at, w.topic, w.priority
        FROM {{ box.message }} AS w
        WHERE w.id = head.id
        OFFSET 0
    ) AS m
    WHERE u.group_id = ANY (locked)
        OR NOT EXISTS (SELECT FROM {{ box.group }} AS g WHERE g.group_id = u.group_id);

    PERFORM {{ box._probe }}(ARRAY(
        SELECT g.group_id
        FROM {{ box.group }} AS g
        WHERE g.group_id = ANY (unsure) AND g.group_id <> ALL (locked)
    ));
END;
$$;
