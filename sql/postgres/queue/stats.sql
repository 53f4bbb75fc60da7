CREATE OR REPLACE FUNCTION {{ box.stats }}()
RETURNS TABLE (
    topic text,
    ready bigint,
    scheduled bigint,
    in_flight bigint,
    done bigint,
    dead bigint,
    oldest_ready_seconds double precision
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    -- How many messages each topic has in each state, and how long its oldest claimable one has been waiting.
    -- Done ones are not counted but remembered, so the cost is that of what is waiting or dead.
    -- returns: topic, ready, scheduled, in_flight, done, dead, oldest_ready_seconds; by topic, the total last, with a null topic
    -- errors: none
    -- locks: none
    -- role: operator
DECLARE
    now_at timestamptz := {{ db._now }}();
BEGIN
    RETURN QUERY
    WITH state AS (
        SELECT r.topic, sum(r.span)::bigint AS ready, 0::bigint AS scheduled, 0::bigint AS in_flight, 0::bigint AS done, 0::bigint AS dead
        FROM (
            SELECT o.topic, o.id, o.span FROM {{ box.ready }} AS o
            WHERE o.lane = 0 AND o.ticket >= (SELECT q.last_value FROM {{ box._low_ticket }} AS q)
            UNION ALL
            SELECT o.topic, o.id, o.span FROM {{ box.ready }} AS o WHERE o.lane < 0
            UNION ALL
            SELECT o.topic, o.id, o.span FROM {{ box.ready }} AS o WHERE o.lane > 0
        ) AS r
        WHERE r.id IS NOT NULL
        GROUP BY r.topic
        UNION ALL
        SELECT
            m.topic, count(*) FILTER (WHERE m.due_at IS NULL OR m.due_at <= now_at),
            count(*) FILTER (WHERE m.due_at > now_at), 0, 0, 0
        FROM {{ box.group_member }} AS gm
        INNER JOIN {{ box.message }} AS m ON m.id = gm.id
        GROUP BY m.topic
        UNION ALL
        SELECT
            s.topic, count(*) FILTER (WHERE s.due_at <= now_at), count(*) FILTER (WHERE s.due_at > now_at), 0, 0, 0
        FROM {{ box.scheduled }} AS s
        WHERE s.id IS NOT NULL
        GROUP BY s.topic
        UNION ALL
        SELECT l.topic, 0, 0, count(*), 0, 0 FROM {{ box.lease }} AS l
        WHERE l.locked_until >= to_timestamp((SELECT q.last_value FROM {{ box._low_lease }} AS q) / 1000000.0)
        GROUP BY l.topic
        UNION ALL
        SELECT t.topic, 0, 0, 0, t.done, 0 FROM {{ box.tally_total }} AS t
        UNION ALL
        SELECT t.topic, 0, 0, 0, sum(t.done)::bigint, 0 FROM {{ box.tally }} AS t
        WHERE t.no >= (SELECT q.last_value FROM {{ box._low_tally }} AS q)
        GROUP BY t.topic
        UNION ALL
        SELECT d.topic, 0, 0, 0, 0, count(*) FROM {{ box.dead }} AS d GROUP BY d.topic
    ),
    known AS (
        SELECT
            state.topic, sum(state.ready)::bigint AS ready, sum(state.scheduled)::bigint AS scheduled,
            sum(state.in_flight)::bigint AS in_flight, sum(state.done)::bigint AS done, sum(state.dead)::bigint AS dead
        FROM state
        WHERE state.topic IS NOT NULL
        GROUP BY state.topic
    ),
    aged AS (
        SELECT known.*, extract(epoch FROM now_at - oldest.since)::double precision AS oldest_ready_seconds
        FROM known
        LEFT JOIN LATERAL (
            SELECT min(w.since) AS since
            FROM (
                (
                    SELECT greatest(m.due_at, m.{{ "first_seen_at" if kind == "inbox" else "created_at" }}) AS since
                    FROM {{ box.ready }} AS r
                    INNER JOIN {{ box.message }} AS m ON m.id = r.id
                    WHERE r.topic = known.topic
                    ORDER BY r.topic, r.lane, r.ticket
                    LIMIT 1
                )
                UNION ALL
                (
                    SELECT greatest(s.due_at, m.{{ "first_seen_at" if kind == "inbox" else "created_at" }})
                    FROM {{ box.scheduled }} AS s
                    INNER JOIN {{ box.message }} AS m ON m.id = s.id
                    WHERE s.topic = known.topic AND s.due_at <= now_at
                    ORDER BY s.due_at
                    LIMIT 1
                )
                UNION ALL
                (
                    SELECT greatest(m.due_at, m.{{ "first_seen_at" if kind == "inbox" else "created_at" }})
                    FROM {{ box.group_member }} AS gm
                    INNER JOIN {{ box.message }} AS m ON m.id = gm.id
                    WHERE m.topic = known.topic AND (m.due_at IS NULL OR m.due_at <= now_at)
                    ORDER BY m.id
                    LIMIT 1
                )
            ) AS w
        ) AS oldest ON known.ready > 0
    )
    SELECT a.topic, a.ready, a.scheduled, a.in_flight, a.done, a.dead, a.oldest_ready_seconds
    FROM (
        SELECT aged.* FROM aged
        WHERE aged.ready + aged.scheduled + aged.in_flight + aged.dead > 0 OR aged.done <> 0
        UNION ALL
        SELECT
            NULL, coalesce(sum(aged.ready), 0)::bigint, coalesce(sum(aged.scheduled), 0)::bigint,
            coalesce(sum(aged.in_flight), 0)::bigint, coalesce(sum(aged.done), 0)::bigint,
            coalesce(sum(aged.dead), 0)::bigint, max(aged.oldest_ready_seconds)
        FROM aged
    ) AS a
    ORDER BY a.topic NULLS LAST;
END;
$$;
