CREATE OR REPLACE FUNCTION {{ box.find }}(
    OUT id bigint,
    INOUT message_id uuid,
    OUT topic text,
    OUT payload text,
    OUT correlation_id text,
    OUT group_id text,
    OUT priority smallint,
    OUT dedup_key text,
    OUT collapse_key text,
    OUT headers jsonb,
    OUT status text,
    OUT attempt integer,
    OUT created_at timestamptz,
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
    -- One message by its message_id, with its status and bookkeeping; no row if there is none.
    -- returns: id, message_id, topic, payload, correlation_id, group_id, priority, dedup_key, collapse_key, headers, status, attempt, created_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at
    -- errors: PB001
    -- locks: none
    -- role: operator
DECLARE
    wanted_id CONSTANT uuid := message_id;
BEGIN
    IF message_id IS NULL THEN
        PERFORM {{ db._reject }}('message_id', 'must not be null');
    END IF;
    RETURN QUERY SELECT m.* FROM {{ box.messages }} AS m
    WHERE m.message_id = wanted_id
        AND m.id = coalesce(
            (SELECT g.id FROM {{ box.message }} AS g WHERE g.message_id = wanted_id AND g.is_given),
            {{ "wanted_id" | drawn_id }}
        );
END;
$$;
