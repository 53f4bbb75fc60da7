CREATE OR REPLACE FUNCTION {{ box._valid }}(
    topic text,
    payload text,
{% if kind == "inbox" %}
    source text,
    message_id text,
{% else %}
    correlation_id text,
    dedup_key text,
{% endif %}
    due_at timestamptz,
    group_id text,
    priority integer,
    collapse_key text,
    expires_at timestamptz,
    headers jsonb,
    created_at timestamptz,
    delay_seconds double precision
)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    -- Whether a message may be enqueued: a yes or no that the planner inlines. _explain tells which rule was broken.
    -- Times are those that every client can read: a claim with another one in it would fail there, leases and all.
    -- returns: boolean; null counts as no
    -- errors: none
    -- locks: none
    -- role: internal
    SELECT topic <> '' AND length(topic) <= 255 AND payload IS NOT NULL
{% if kind == "inbox" %}
        AND source <> '' AND length(source) <= 255 AND message_id <> '' AND length(message_id) <= 255
{% else %}
        AND (correlation_id IS NULL OR length(correlation_id) <= 255)
        AND (dedup_key IS NULL OR (dedup_key <> '' AND length(dedup_key) <= 255))
{% endif %}
        AND (due_at IS NULL OR (due_at >= '0001-01-01 00:00:00+00' AND due_at < '10000-01-01 00:00:00+00'))
        AND (group_id IS NULL OR (group_id <> '' AND length(group_id) <= 255))
        AND priority BETWEEN -32768 AND 32767
        AND (collapse_key IS NULL OR (collapse_key <> '' AND length(collapse_key) <= 255))
        AND (expires_at IS NULL OR (expires_at >= '0001-01-01 00:00:00+00' AND expires_at < '10000-01-01 00:00:00+00'))
        AND (headers IS NULL OR jsonb_typeof(headers) = 'object')
        AND (created_at IS NULL OR (created_at >= '0001-01-01 00:00:00+00' AND created_at < '10000-01-01 00:00:00+00'))
        AND (delay_seconds IS NULL OR (delay_seconds >= 0 AND delay_seconds <= 1000000000 AND due_at IS NULL));
$$;
