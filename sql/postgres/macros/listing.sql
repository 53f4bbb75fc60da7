{#
  The next candidates of a page: no, in whose order they come, and id. Each source gives its own next ones, at most as
  many as there is room for, through an index in that order. What a list passes over counts as looked at: messages that
  its caller filters out, and rows that are none (a group's ticket, one under another number), which have no id.
  Uses after_at, room, lanes, only_topic and only_group of the caller.

  Each source is written so that one index alone has its order: in a plan that was made while there was little, all others
  would be as good, and walk over what is not asked for.
#}

{# Rows of a table in the order of its ids; those for which the condition is not true have none to show. #}
{% macro in_order(table, where="", condition="") %}
SELECT t.id AS no, {{ "CASE WHEN " ~ condition ~ " THEN t.id END AS id" if condition else "t.id" }} FROM {{ table }} AS t
                WHERE {{ where ~ " AND " if where }}t.id > after_at
                ORDER BY t.id
                LIMIT room
{%- endmacro %}

{# What one group has. #}
{% macro group_members() %}
SELECT t.id AS no, t.id FROM {{ box.group_member }} AS t
                WHERE t.group_id = only_group AND t.id > after_at
                ORDER BY t.group_id, t.id
                LIMIT room
{%- endmacro %}
{% macro group_leases() %}
SELECT t.id AS no, t.id FROM {{ box.lease }} AS t
                WHERE t.group_id = only_group AND t.id + 0 > after_at
                ORDER BY t.group_id, t.id + 0
                LIMIT room
{%- endmacro %}

{# The dead of a status; those of one topic by its own index. #}
{% macro dead(of_topic) %}
{% set condition = "CASE WHEN t.expired THEN 'Expired' WHEN t.cancelled THEN 'Cancelled' ELSE '" ~ ("Dead" if kind == "inbox" else "Failed") ~ "' END = wanted" %}
{% if of_topic %}
SELECT t.id AS no, CASE WHEN {{ condition }} THEN t.id END AS id FROM {{ box.dead }} AS t
                WHERE (t.topic, t.id) > (only_topic, after_at) AND t.topic <= only_topic
                ORDER BY t.topic, t.id
                LIMIT room
{%- else %}
{{ in_order(box.dead, "", condition) }}
{%- endif %}
{%- endmacro %}
{% macro seen() %}
{{ in_order(box.seen, "", "t.processing = (wanted = 'Processing')") }}
{%- endmacro %}

{#
  What waits. A fresh message's ticket is its id; of a run, the first one's. The run that a page ended in goes on. A
  message that came back is found by its id. Of two with one number the message goes first, or a page that ends between
  them would lose it.
#}
{% macro waiting(of_topic) %}
SELECT w.no, w.id
            FROM (
                SELECT g.no, CASE WHEN run.is_fresh THEN g.no END AS id
                FROM unnest(lanes) AS n (lane)
                CROSS JOIN LATERAL (
                    (
                        -- No run is longer than 32, and none overlaps another.
                        SELECT f.ticket, f.span, true AS is_fresh FROM {{ box.ready }} AS f
                        WHERE f.lane = n.lane AND f.ticket <= after_at AND f.ticket > after_at - 64 AND f.id = f.ticket
{%- if of_topic %}

                            AND f.topic = only_topic
{%- endif %}

                        ORDER BY f.lane DESC, f.ticket DESC
                        LIMIT 1
                    )
                    UNION ALL
                    (
                        SELECT r.ticket, CASE WHEN r.id = r.ticket THEN r.span ELSE 1 END, coalesce(r.id = r.ticket, false)
                        FROM {{ box.ready }} AS r
{%- if of_topic %}

                        WHERE (r.topic, r.lane, r.ticket) > (only_topic, n.lane, after_at)
                            AND (r.topic, r.lane) <= (only_topic, n.lane)
                        ORDER BY r.topic, r.lane, r.ticket
{%- else %}

                        WHERE r.lane = n.lane AND r.ticket > after_at
                        ORDER BY r.lane, r.ticket
{%- endif %}

                        LIMIT room
                    )
                ) AS run
                CROSS JOIN LATERAL generate_series(greatest(run.ticket, after_at + 1), run.ticket + run.span - 1) AS g (no)
                UNION ALL
                ({{ in_order(box.ready, "t.ticket <> t.id") }})
                UNION ALL
                ({{ in_order(box.scheduled, "t.id IS NOT NULL") }})
                UNION ALL
                ({{ in_order(box.group_member, "t.id > 0") }})
{%- if kind == "inbox" %}

                UNION ALL
                ({{ in_order(box.lease) }})
                UNION ALL
                ({{ seen() }})
{%- endif %}

            ) AS w
            ORDER BY w.no, w.id NULLS LAST
            LIMIT room
{%- endmacro %}

{# What is done, run by run. #}
{% macro done() %}
SELECT g.id AS no, g.id
            FROM (
                SELECT n.id, n.span, sum(n.span) OVER (ORDER BY n.id ROWS UNBOUNDED PRECEDING) - n.span AS before
                FROM (
                    (
                        -- The one run that the page before can have ended in: none is longer than 1000 or overlaps another.
                        SELECT e.id, e.span FROM {{ box.done }} AS e
                        WHERE e.id <= after_at AND e.id > after_at - 1000
                        ORDER BY e.id DESC
                        LIMIT 1
                    )
                    UNION ALL
                    (SELECT d.id, d.span FROM {{ box.done }} AS d WHERE d.id > after_at ORDER BY d.id LIMIT room)
                ) AS n
            ) AS run
            CROSS JOIN LATERAL generate_series(greatest(run.id, after_at + 1), run.id + run.span - 1) AS g (id)
            WHERE run.before < room + 1000
            ORDER BY g.id
            LIMIT room
{%- endmacro %}
