{#- What a claim hands out of each message m, in the order of the contract; until is the end of its lease. -#}
{% macro claimed(until) -%}
{% if kind == "inbox" -%}
        m.id,
        LEFT(m.message_id_key, LEN(m.message_id_key) - 1) AS message_id,
        LEFT(m.source_key, LEN(m.source_key) - 1) AS source,
        m.topic, m.payload, m.hash, m.group_id, m.priority, m.headers, m.attempt,
        m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error, {{ until }}
{%- else -%}
        m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.headers, m.attempt,
        m.created_at, m.due_at, m.expires_at, m.last_error, {{ until }}
{%- endif %}
{%- endmacro %}

{#- When message m came in. -#}
{% macro came_at() -%}
m.{{ "first_seen_at" if kind == "inbox" else "created_at" }}
{%- endmacro %}

{#- Since when message m could have been handed out, if its time has come. -#}
{% macro since() -%}
CASE WHEN m.due_at > {{ came_at() }} THEN m.due_at ELSE {{ came_at() }} END
{%- endmacro %}
