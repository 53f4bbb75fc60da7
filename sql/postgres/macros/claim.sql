{# What a claim answers: the columns of a message, m, and the end of its lease. #}
{% macro columns() %}
{% if kind == "inbox" %}
            m.id, m.message_id, m.source, m.topic, m.payload, m.hash, m.group_id, m.priority, m.headers, m.attempt,
            m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error, until_at
{%- else %}
            m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.headers, m.attempt,
            m.created_at, m.due_at, m.expires_at, m.last_error, until_at
{%- endif %}
{%- endmacro %}
{# The result table of claim and settle. #}
{% macro result() %}
    id bigint,
{% if kind == "inbox" %}
    message_id text,
    source text,
    topic text,
    payload text,
    hash bytea,
{% else %}
    message_id uuid,
    topic text,
    payload text,
    correlation_id text,
{% endif %}
    group_id text,
    priority smallint,
    headers jsonb,
    attempt integer,
{% if kind == "inbox" %}
    first_seen_at timestamptz,
    last_seen_at timestamptz,
{% else %}
    created_at timestamptz,
{% endif %}
    due_at timestamptz,
    expires_at timestamptz,
    last_error text,
    locked_until timestamptz
{%- endmacro %}
{#
  Takes the next rows of a lane, of which the last may have more messages than there is room for. The caller of this
  says what is next: rows of ready as w, in order, locked and not skipped over, with their place. What is deleted is
  what this claim has.
#}
{% macro take() %}
gone AS (
                    DELETE FROM {{ box.ready }} AS r
                    WHERE r.ctid = ANY (ARRAY(
                        SELECT n.place
                        FROM (
                            SELECT c.place, sum(c.span) OVER (ORDER BY c.ticket ROWS UNBOUNDED PRECEDING) - c.span AS before
                            FROM (
                                {{ caller() }}
                            ) AS c
                        ) AS n
                        WHERE n.before < room
                    ))
                    RETURNING r.ticket, r.id, r.span, r.topic, r.group_id, r.expires_at <= now_at AS is_overdue
                )
                SELECT
                    count(*), sum(g.span), max(g.span), min(g.id),
                    bool_and(g.ticket = g.id) AND max(g.id + g.span) - min(g.id) = sum(g.span) AND min(g.topic) = max(g.topic)
                        AND bool_or(g.is_overdue) IS NOT TRUE,
                    array_agg(g.id), array_agg(g.span), array_agg(g.topic), array_agg(g.group_id),
                    bool_or(g.group_id IS NOT NULL), array_agg(g.id) FILTER (WHERE g.is_overdue), max(g.ticket)
{%- endmacro %}
