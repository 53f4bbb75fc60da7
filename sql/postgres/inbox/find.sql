CREATE OR REPLACE FUNCTION {{ box.find }}(
    OUT id bigint,
    INOUT message_id text,
    INOUT source text,
    OUT topic text,
    OUT payload text,
    OUT hash bytea,
    OUT group_id text,
    OUT priority smallint,
    OUT collapse_key text,
    OUT headers jsonb,
    OUT status text,
    OUT attempt integer,
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
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
    -- One message by its key, with its status and bookkeeping; no row if there is none.
    -- returns: id, message_id, source, topic, payload, hash, group_id, priority, collapse_key, headers, status, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at
    -- errors: PB001
    -- locks: none
    -- role: operator
DECLARE
    wanted_id CONSTANT text := message_id;
    wanted_source CONSTANT text := source;
BEGIN
    PERFORM {{ box._check_key }}(message_id, source);
    RETURN QUERY SELECT m.* FROM {{ box.messages }} AS m WHERE m.source = wanted_source AND m.message_id = wanted_id;
END;
$$;
