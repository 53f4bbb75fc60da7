{#-
The next candidates of a page: no, in whose order they come, and id, the body of an INSERT into @found. Each source
gives its own next ones, at most as many as there is room for, through an index in that order. What a list passes over
counts as looked at: messages that its caller filters out, and rows that are none (a group's ticket, one under another
number), which have no id.

Uses @after_no, @room, @lane, @topic_key and @group_key of the caller.
-#}

{#- Rows of a table in the order of its ids; those for which the condition is not true have none to show. -#}
{% macro in_order(table, index, seek="id", where="", condition="") -%}
    SELECT TOP (@room) t.id AS no, {{ "CASE WHEN " ~ condition ~ " THEN t.id END AS id" if condition else "t.id" }}
    FROM {{ table }} AS t WITH (FORCESEEK ({{ index }} ({{ seek }})))
    WHERE {{ where ~ " AND " if where }}t.id > @after_no
    ORDER BY t.id
{%- endmacro %}

{#- Several sources as one. -#}
{% macro merged(sources) -%}
    SELECT TOP (@room) w.no, w.id
    FROM (
        {{ sources | indent(4) }}
    ) AS w
    -- Of two with one number the message goes first, or a page that ends between them would lose it.
    ORDER BY w.no, CASE WHEN w.id IS NULL THEN 1 ELSE 0 END
{%- endmacro %}

{% macro source(table, index, seek="id", where="", condition="") -%}
    SELECT s.no, s.id
    FROM (
        {{ in_order(table, index, seek, where, condition) | indent(4) }}
    ) AS s
{%- endmacro %}

{#- What one group has in a table. -#}
{% macro group_members() -%}
    {{ source(box.group_member, key.pk_group_member, "group_key, id", "t.group_key = @group_key") }}
{%- endmacro %}

{% macro group_leases() -%}
    {{ source(box.lease, key.ix_lease_group, "group_key", "t.group_key = @group_key AND t.group_key IS NOT NULL") }}
{%- endmacro %}

{% macro of_group() -%}
    {{ group_members() }}
    UNION ALL
    {{ group_leases() }}
{%- endmacro %}

{#- The dead of a status; those of one topic by its own index. -#}
{% macro dead(of_topic) -%}
{% set condition = "CASE WHEN t.expired = 1 THEN N'Expired' WHEN t.cancelled = 1 THEN N'Cancelled' ELSE N'" ~ ("Dead" if kind == "inbox" else "Failed") ~ "' END = @wanted" -%}
    {{ source(box.dead, key.ix_dead_topic, "topic_key, id", "t.topic_key = @topic_key", condition) if of_topic else source(box.dead, key.pk_dead, "id", "", condition) }}
{%- endmacro %}

{% macro seen() -%}
    {{ source(box.seen, key.pk_seen, "id", "", "t.processing = CASE WHEN @wanted = N'Processing' THEN 1 ELSE 0 END") }}
{%- endmacro %}

{#-
What waits. A fresh message's ticket is its id; one that came back is found by its id. Lanes that had nothing when they
were read, and have now, lie between those that had.
-#}
{% macro waiting(of_topic) -%}
    SELECT f.no, f.id
    FROM @lane AS n
    CROSS APPLY (
        SELECT TOP (@room) r.ticket AS no, CASE WHEN r.id IS NULL AND r.group_key IS NULL THEN r.ticket END AS id
{% if of_topic %}
        FROM {{ box.ready }} AS r WITH (FORCESEEK ({{ key.ix_ready_topic }} (topic_key, lane, ticket)))
        WHERE r.topic_key = @topic_key AND r.lane = n.lane AND r.ticket > @after_no
{% else %}
        FROM {{ box.ready }} AS r WITH (FORCESEEK ({{ key.pk_ready }} (lane, ticket)))
        WHERE r.lane = n.lane AND r.ticket > @after_no
{% endif %}
        ORDER BY r.ticket
    ) AS f
    UNION ALL
    SELECT f.no, f.id
    FROM @lane AS n
    CROSS APPLY (
        SELECT TOP (@room) r.ticket AS no, CASE WHEN r.id IS NULL AND r.group_key IS NULL THEN r.ticket END AS id
        FROM {{ box.ready }} AS r WITH (FORCESEEK ({{ key.pk_ready }} (lane)))
        WHERE r.lane > n.lane AND r.lane < n.next_lane AND r.ticket > @after_no
        ORDER BY r.lane, r.ticket
    ) AS f
    UNION ALL
    {{ source(box.ready, key.ix_ready_returned, "id", "t.id IS NOT NULL") }}
    UNION ALL
    {{ source(box.scheduled, key.ix_scheduled_id, "id", "t.id IS NOT NULL") }}
    UNION ALL
    {{ source(box.group_member, key.ix_group_member_id) }}
{% if kind == "inbox" %}
    UNION ALL
    {{ source(box.lease, key.pk_lease) }}
    UNION ALL
    {{ seen() }}
{% endif %}
{%- endmacro %}
