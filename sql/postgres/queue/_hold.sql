CREATE OR REPLACE FUNCTION {{ box._hold }}(id bigint)
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Keeps a message where it is until the transaction ends, if it is not over yet, and says what became of it.
    -- Whoever settles or cancels it then comes later, and finds what the caller has written about it. Claims do not wait:
    -- they pass over what is locked, and so does an enqueue with its collapse key. Its row is updated, not just locked, so
    -- that whoever takes it under an older snapshot, and could not see what the caller writes, fails to serialize; but not
    -- where this transaction has put it, since nobody else can see it there.
    -- returns: text; pending, completed or failed; null if there is no such message
    -- errors: none
    -- locks: group, lease, message
    -- role: internal
DECLARE
    place text;
    old_lane integer;
    old_due_at timestamptz;
    old_group text;
    old_ticket bigint;
    is_own boolean;
BEGIN
    LOOP
        -- One snapshot has a message in exactly one place. OFFSET 0 keeps a lookup a lookup, whatever the planner knew of
        -- the tables when it made the plan.
        SELECT
            CASE
                WHEN EXISTS (
                    SELECT FROM (
                        SELECT n.id + n.span AS next_id FROM {{ box.done }} AS n
                        WHERE n.id <= m.id AND n.id > m.id - 1000
                        ORDER BY n.id DESC
                        LIMIT 1
                    ) AS run
                    WHERE run.next_id > m.id
                ) THEN 'completed'
                WHEN EXISTS (SELECT FROM {{ box.dead }} AS d WHERE d.id = m.id OFFSET 0) THEN 'failed'
                WHEN EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.id = m.id OFFSET 0) THEN 'lease'
                WHEN EXISTS (
                    SELECT FROM {{ box.group_member }} AS gm WHERE gm.group_id = m.group_id AND gm.id = m.id
                    OFFSET 0
                ) THEN 'member'
                WHEN EXISTS (
                    SELECT FROM {{ box.scheduled }} AS s WHERE s.due_at = m.due_at AND s.no = m.id AND s.id = m.id
                    OFFSET 0
                ) THEN 'scheduled'
                WHEN r.ticket IS NOT NULL THEN 'ready'
            END,
            m.due_at, m.group_id, r.lane, r.ticket, r.is_own
        INTO place, old_due_at, old_group, old_lane, old_ticket, is_own
        FROM {{ box.message }} AS m
        LEFT JOIN LATERAL (
            (
                SELECT f.lane, f.ticket, f.xmin = pg_current_xact_id_if_assigned()::xid AS is_own
                FROM {{ box.ready }} AS f
                WHERE f.lane = 0 - m.priority AND f.ticket <= m.id AND f.ticket > m.id - 64
                    AND f.id = f.ticket AND f.id + f.span > m.id
                ORDER BY f.lane DESC, f.ticket DESC
                LIMIT 1
            )
            UNION ALL
            SELECT b.lane, b.ticket, b.xmin = pg_current_xact_id_if_assigned()::xid
            FROM {{ box.ready }} AS b
            WHERE b.id = m.id AND b.ticket <> b.id
        ) AS r ON true
        WHERE m.id = $1;
        CASE place
            WHEN 'lease' THEN
                UPDATE {{ box.lease }} AS l SET topic = l.topic WHERE l.id = $1;
            WHEN 'ready' THEN
                IF is_own THEN
                    RETURN 'pending';
                END IF;
                UPDATE {{ box.ready }} AS r SET topic = r.topic
                WHERE r.lane = old_lane AND r.ticket = old_ticket AND $1 BETWEEN r.id AND r.id + r.span - 1;
            WHEN 'scheduled' THEN
                UPDATE {{ box.scheduled }} AS s SET topic = s.topic
                WHERE s.due_at = old_due_at AND s.no = $1 AND s.id = $1;
            WHEN 'member' THEN
                UPDATE {{ box.group_member }} AS gm SET id = gm.id
                WHERE gm.group_id = old_group AND gm.id = $1;
            ELSE
                RETURN place;
        END CASE;
        IF FOUND THEN
            RETURN 'pending';
        END IF;
        -- It went elsewhere while this waited; the next look is a new snapshot.
    END LOOP;
END;
$$;
