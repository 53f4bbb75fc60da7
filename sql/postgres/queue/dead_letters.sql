CREATE OR REPLACE FUNCTION {{ box.dead_letters }}(
    "limit" integer DEFAULT 100,
    after_id bigint DEFAULT 0,
    OUT id bigint,
{% if kind == "inbox" %}
    OUT message_id text,
    OUT source text,
    INOUT topic text DEFAULT NULL,
    OUT payload text,
    OUT hash bytea,
    OUT group_id text,
    OUT priority smallint,
{% else %}
    OUT message_id uuid,
    INOUT topic text DEFAULT NULL,
    OUT payload text,
    OUT correlation_id text,
    OUT group_id text,
    OUT priority smallint,
    OUT dedup_key text,
{% endif %}
    OUT collapse_key text,
    OUT headers jsonb,
    OUT status text,
    OUT attempt integer,
{% if kind == "inbox" %}
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
{% else %}
    OUT created_at timestamptz,
{% endif %}
    OUT due_at timestamptz,
    OUT expires_at timestamptz,
    OUT last_error text,
    OUT died_at timestamptz
)
RETURNS SETOF record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Dead, expired and cancelled messages, a page at a time.
    -- limit: from 1 to 10000
    -- after_id: the last id of the page before
    -- topic: only this one; null for all
{% if kind == "inbox" %}
    -- returns: id, message_id, source, topic, payload, hash, group_id, priority, collapse_key, headers, status, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, died_at; in id order
{% else %}
    -- returns: id, message_id, topic, payload, correlation_id, group_id, priority, dedup_key, collapse_key, headers, status, attempt, created_at, due_at, expires_at, last_error, died_at; in id order
{% endif %}
    -- errors: PB001
    -- locks: none
    -- role: operator
DECLARE
    only_topic text := topic;
BEGIN
    IF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    END IF;
    RETURN QUERY
    SELECT
{% if kind == "inbox" %}
        m.id, m.message_id, m.source, m.topic, m.payload, m.hash, m.group_id, m.priority, m.collapse_key, m.headers,
        m.status, m.attempt, m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error, m.died_at
{% else %}
        m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.dedup_key, m.collapse_key,
        m.headers, m.status, m.attempt, m.created_at, m.due_at, m.expires_at, m.last_error, m.died_at
{% endif %}
    FROM (
        SELECT d.id
        FROM {{ box.dead }} AS d
        WHERE d.id > coalesce($2, 0) AND (only_topic IS NULL OR d.topic = only_topic)
        ORDER BY d.id
        LIMIT $1
    ) AS page
    INNER JOIN {{ box.messages }} AS m ON m.id = page.id
    ORDER BY m.id;
END;
$$;
