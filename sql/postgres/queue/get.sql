CREATE OR REPLACE FUNCTION {{ box.get }}(
    INOUT id bigint,
{% if kind == "inbox" %}
    OUT message_id text,
    OUT source text,
    OUT topic text,
    OUT payload text,
    OUT hash bytea,
    OUT group_id text,
    OUT priority smallint,
{% else %}
    OUT message_id uuid,
    OUT topic text,
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
    OUT owner_token uuid,
    OUT locked_until timestamptz,
    OUT processed_at timestamptz,
    OUT processed_by uuid,
    OUT died_at timestamptz
)
RETURNS SETOF record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- One message by its id, with its status and bookkeeping.
{% if kind == "inbox" %}
    -- returns: id, message_id, source, topic, payload, hash, group_id, priority, collapse_key, headers, status, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at
{% else %}
    -- returns: id, message_id, topic, payload, correlation_id, group_id, priority, dedup_key, collapse_key, headers, status, attempt, created_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at
{% endif %}
    -- errors: PB001, PB002
    -- locks: none
    -- role: operator
BEGIN
    IF id IS NULL THEN
        PERFORM {{ db._reject }}('id', 'must not be null');
    END IF;
    RETURN QUERY SELECT m.* FROM {{ box.messages }} AS m WHERE m.id = $1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'id: no such message; it must be an id of this box, and may have been cleaned up';
    END IF;
END;
$$;
