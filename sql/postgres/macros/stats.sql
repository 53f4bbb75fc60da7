{#
  What is where, by topic: the CTE "known" with ready, scheduled, in_flight, done, dead and since, the time from which on the
  oldest claimable message waits. Wants now_at.

      WITH {{ stats.known() }}
      SELECT … FROM known AS k
#}
{% macro known() -%}
ready AS MATERIALIZED (
        SELECT r.topic, r.lane, sum(r.span)::bigint AS messages, min(r.ticket) AS first_ticket
        FROM {{ box.ready }} AS r
        WHERE r.id IS NOT NULL
        GROUP BY r.topic, r.lane
    ),
    state AS (
        SELECT
            ready.topic, ready.messages AS ready, 0::bigint AS scheduled, 0::bigint AS in_flight, 0::bigint AS done,
            0::bigint AS dead, greatest(m.due_at, m.came_at) AS since
        FROM ready
        -- OFFSET 0 keeps a lookup a lookup, whatever the planner knows of the tables.
        LEFT JOIN LATERAL (
            SELECT w.due_at, w.{{ "first_seen_at" if kind == "inbox" else "created_at" }} AS came_at
            FROM {{ box.ready }} AS x
            INNER JOIN {{ box.message }} AS w ON w.id = x.id
            WHERE x.lane = ready.lane AND x.ticket = ready.first_ticket
            OFFSET 0
        ) AS m ON true
        UNION ALL
        SELECT
            m.topic, count(*) FILTER (WHERE m.due_at > now_at IS NOT TRUE), count(*) FILTER (WHERE m.due_at > now_at), 0, 0, 0,
            min(greatest(m.due_at, m.came_at)) FILTER (WHERE m.due_at > now_at IS NOT TRUE)
        FROM {{ box.group_member }} AS gm
        CROSS JOIN LATERAL (
            SELECT w.topic, w.due_at, w.{{ "first_seen_at" if kind == "inbox" else "created_at" }} AS came_at FROM {{ box.message }} AS w WHERE w.id = gm.id OFFSET 0
        ) AS m
        GROUP BY m.topic
        UNION ALL
        SELECT
            s.topic, count(*) FILTER (WHERE s.due_at <= now_at), count(*) FILTER (WHERE s.due_at > now_at), 0, 0, 0,
            min(s.due_at) FILTER (WHERE s.due_at <= now_at)
        FROM {{ box.scheduled }} AS s
        WHERE s.id IS NOT NULL
        GROUP BY s.topic
        UNION ALL
        SELECT l.topic, 0, 0, count(*), 0, 0, NULL FROM {{ box.lease }} AS l GROUP BY l.topic
        UNION ALL
        SELECT t.topic, 0, 0, 0, sum(t.done)::bigint, coalesce(sum(t.dead), 0)::bigint, NULL
        FROM {{ box.tally }} AS t
        GROUP BY t.topic
    ),
    known AS (
        SELECT
            state.topic, sum(state.ready)::bigint AS ready, sum(state.scheduled)::bigint AS scheduled,
            sum(state.in_flight)::bigint AS in_flight, sum(state.done)::bigint AS done, sum(state.dead)::bigint AS dead,
            min(state.since) AS since
        FROM state
        GROUP BY state.topic
    )
{%- endmacro %}
