{% import "macros/queue.sql" as queue with context %}
{% import "macros/stats.sql" as stats with context %}
{% set came_at = "first_seen_at" if kind == "inbox" else "created_at" %}
CREATE OR REPLACE FUNCTION {{ box._metrics }}()
RETURNS TABLE (
    box text,
    topic text,
    ready bigint,
    scheduled bigint,
    in_flight bigint,
    done bigint,
    dead bigint,
    given_up bigint,
    expired_leases bigint,
    oldest_ready_seconds double precision,
    oldest_dead_seconds double precision,
    blocked_groups bigint,
    longest_blocked_seconds double precision,
    upkeep_seconds double precision,
    reap_seconds double precision
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
    -- One box's part of metrics.
    -- returns: box, topic, ready, scheduled, in_flight, done, dead, given_up, expired_leases, oldest_ready_seconds, oldest_dead_seconds, blocked_groups, longest_blocked_seconds, upkeep_seconds, reap_seconds; by topic, the total last, with a null topic
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    now_at CONSTANT timestamptz := {{ db._now }}();
    paused text[];
    is_paused boolean;
    made_at timestamptz;
BEGIN
    SELECT b.created_at INTO made_at FROM {{ db._box }} AS b WHERE b.name = {{ box_name | literal }};
    SELECT coalesce(array_agg(p.topic), '{}') INTO paused FROM {{ box.paused }} AS p;
    is_paused := '' = ANY (paused);
    RETURN QUERY
    WITH {{ stats.known() }},
    died AS (
        SELECT d.topic, count(*) AS messages, min(d.died_at) AS first_at
        FROM {{ box.dead }} AS d
        WHERE d.topic IS NOT NULL AND NOT (d.cancelled OR d.expired)
        GROUP BY d.topic
    ),
    lost AS (
        SELECT l.topic, count(*) AS leases
        FROM {{ box.lease }} AS l
        WHERE l.locked_until <= now_at
        GROUP BY l.topic
    ),
    figures AS (
        SELECT
            k.*, coalesce(died.messages, 0) AS given_up, died.first_at AS died_at, coalesce(lost.leases, 0) AS leases
        FROM known AS k
        LEFT JOIN died ON died.topic = k.topic
        LEFT JOIN lost ON lost.topic = k.topic
    ),
    -- The groups of the oldest ten thousand members whose head is not due yet or of a paused topic, while the one behind it
    -- is due.
    blocked AS (
        SELECT count(*) AS messages, min(greatest(behind.since, head.since)) AS since
        FROM (
            SELECT DISTINCT f.group_id
            FROM (
                SELECT gm.group_id FROM {{ box.group_member }} AS gm WHERE gm.id > 0 ORDER BY gm.id LIMIT 10000
            ) AS f
        ) AS g
        CROSS JOIN LATERAL (
            SELECT
                m.id, m.{{ came_at }} AS since,
                coalesce(m.due_at > now_at, false) OR is_paused OR m.topic = ANY (paused) AS is_blocking
            FROM {{ box.group_member }} AS gm
            INNER JOIN {{ box.message }} AS m ON m.id = gm.id
            WHERE gm.group_id = g.group_id
            ORDER BY gm.id
            LIMIT 1
        ) AS head
        CROSS JOIN LATERAL (
            SELECT greatest(m.due_at, m.{{ came_at }}) AS since
            FROM {{ box.group_member }} AS gm
            INNER JOIN {{ box.message }} AS m ON m.id = gm.id
            WHERE gm.group_id = g.group_id AND gm.id > head.id
            ORDER BY gm.id
            LIMIT 1
        ) AS behind
        WHERE head.is_blocking AND greatest(behind.since, head.since) <= now_at
            AND NOT EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.group_id = g.group_id)
    )
    SELECT {{ box_name | literal }}, a.* FROM (
        SELECT
            f.topic, f.ready, f.scheduled, f.in_flight, f.done, f.dead, f.given_up, f.leases,
            extract(epoch FROM now_at - f.since)::double precision,
            extract(epoch FROM now_at - f.died_at)::double precision,
            NULL::bigint, NULL::double precision, NULL::double precision, NULL::double precision
        FROM figures AS f
        WHERE f.ready + f.scheduled + f.in_flight + f.dead > 0 OR f.done <> 0
        UNION ALL
        SELECT
            NULL, coalesce(sum(f.ready), 0)::bigint, coalesce(sum(f.scheduled), 0)::bigint,
            coalesce(sum(f.in_flight), 0)::bigint, coalesce(sum(f.done), 0)::bigint, coalesce(sum(f.dead), 0)::bigint,
            coalesce(sum(f.given_up), 0)::bigint, coalesce(sum(f.leases), 0)::bigint,
            extract(epoch FROM now_at - min(f.since))::double precision,
            extract(epoch FROM now_at - min(f.died_at))::double precision,
            (SELECT b.messages FROM blocked AS b),
            (SELECT extract(epoch FROM now_at - b.since)::double precision FROM blocked AS b),
            extract(epoch FROM now_at - coalesce({{ queue.upkeep_at(box._cleaned) }}, made_at))::double precision,
            extract(epoch FROM now_at - coalesce({{ queue.upkeep_at(box._reaped) }}, made_at))::double precision
        FROM figures AS f
    ) AS a
    ORDER BY a.topic NULLS LAST;
END;
$$;
