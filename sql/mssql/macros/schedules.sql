{#- What the routines of schedules have in common. A name's key form is the text with a full stop behind it. -#}

{#- The columns of a schedule s, as schedule_list answers them. -#}
{% macro columns() -%}
LEFT(s.schedule_key, LEN(s.schedule_key) - 1) AS name, s.topic, s.cron, s.every_seconds, s.timezone, s.next_at,
        s.last_fired_at, s.catch_up, s.enabled, s.group_id, CONVERT(int, s.priority) AS priority
{%- endmacro %}

{#- A time that came in, in UTC. -#}
{% macro utc(time) -%}
CONVERT(datetime2(6), SWITCHOFFSET({{ time }}, '+00:00'))
{%- endmacro %}
