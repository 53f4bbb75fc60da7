{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._regroup }}(groups text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Gives each of these groups that nobody holds the ticket it is due: now, or when its head's time comes; a group
    -- without members needs none. A ticket too many is harmless (a claim drops it), one too few loses messages: so where
    -- a producer may still be adding a member unseen, or the snapshot is an old one, the group is probed later as well.
    -- returns: none
    -- errors: none
    -- locks: group
    -- role: internal
DECLARE
    now_at timestamptz;
    low_grouped bigint;
    settled bigint;
    heads bigint[];
    unsure text[];
    alone text[];
BEGIN
    IF groups = '{}' THEN
        RETURN;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM {{ box._probe }}(groups);
        RETURN;
    END IF;
    {{ queue.arrive() }};
    low_grouped := {{ queue.mark(box._low_grouped) }};
    settled := {{ queue.mark(box._settled) }};
    {{ queue.touch() }};
    now_at := {{ db._now }}();

    -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
    WITH free AS MATERIALIZED (
        SELECT g.group_id, m.id, m.topic, 0 - m.priority AS lane, m.due_at > now_at IS NOT TRUE AS is_due
        FROM unnest(groups) AS g (group_id)
        LEFT JOIN LATERAL (
            SELECT gm.id
            FROM {{ box.group_member }} AS gm
            WHERE gm.group_id = g.group_id AND gm.id >= low_grouped
            ORDER BY gm.group_id, gm.id
            LIMIT 1
        ) AS head ON true
        LEFT JOIN LATERAL (
            SELECT w.id, w.due_at, w.topic, w.priority
            FROM {{ box.message }} AS w
            WHERE w.id = head.id
            OFFSET 0
        ) AS m ON true
        WHERE NOT {{ queue.is_held("g.group_id") }}
    ),
    now_ready AS (
        INSERT INTO {{ box.ready }} (lane, ticket, topic, group_id)
        SELECT f.lane, nextval({{ box._ids | literal }}), f.topic, f.group_id
        FROM (
            SELECT free.lane, free.topic, free.group_id FROM free WHERE free.id IS NOT NULL AND free.is_due ORDER BY free.id
        ) AS f
    )
    -- Up to the settled number nobody can bring a member any more that would come before the head.
    SELECT array_agg(free.group_id), array_agg(CASE WHEN free.is_due THEN free.id END)
    INTO unsure, heads
    FROM free
    WHERE free.id IS NULL OR NOT free.is_due OR free.id > settled;
    IF unsure IS NULL THEN
        RETURN;
    END IF;

    -- Nobody can be adding a member under this lock without putting out a ticket; what was added before it shows now, and
    -- may have to go before the member that waits for its time, or be of a topic that others ask for.
    alone := ARRAY(
        SELECT g.group_id
        FROM {{ box.group }} AS g
        WHERE g.group_id = ANY (unsure)
        ORDER BY g.group_id
        FOR UPDATE SKIP LOCKED
    );
    -- Of a group without a row every producer puts out a ticket itself.
    INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic, group_id)
    SELECT greatest(m.due_at, now_at), nextval({{ box._ids | literal }}), 0 - m.priority, m.topic, u.group_id
    FROM unnest(unsure, heads) AS u (group_id, ticketed_id)
    CROSS JOIN LATERAL (
        SELECT gm.id
        FROM {{ box.group_member }} AS gm
        WHERE gm.group_id = u.group_id AND gm.id >= low_grouped
        ORDER BY gm.group_id, gm.id
        LIMIT 1
    ) AS head
    CROSS JOIN LATERAL (
        SELECT w.due_at, w.topic, w.priority
        FROM {{ box.message }} AS w
        WHERE w.id = head.id
        OFFSET 0
    ) AS m
    WHERE head.id IS DISTINCT FROM u.ticketed_id
        AND (
            u.group_id = ANY (alone)
            OR NOT EXISTS (SELECT FROM {{ box.group }} AS g WHERE g.group_id = u.group_id OFFSET 0)
        );

    PERFORM {{ box._probe }}(ARRAY(
        SELECT u.group_id
        FROM unnest(unsure) AS u (group_id)
        WHERE u.group_id <> ALL (alone)
            AND EXISTS (SELECT FROM {{ box.group }} AS g WHERE g.group_id = u.group_id OFFSET 0)
    ));
END;
$$;
