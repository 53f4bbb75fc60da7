CREATE OR REPLACE FUNCTION {{ db.join_get }}(
    INOUT join_id uuid,
    OUT tenant_id text,
    OUT expected_steps integer,
    OUT completed_steps integer,
    OUT failed_steps integer,
    OUT status text,
    OUT metadata text,
    OUT created_at timestamptz,
    OUT last_updated_at timestamptz
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- One join with its counters. status is Pending, Completed, Failed or Cancelled; expected_steps is null while the
    -- join is open.
    -- join_id: not null
    -- returns: join_id, tenant_id, expected_steps, completed_steps, failed_steps, status, metadata, created_at, last_updated_at
    -- errors: PB001, PB002
    -- locks: none
    -- role: producer, viewer
BEGIN
    IF join_id IS NULL THEN
        PERFORM {{ db._reject }}('join_id', 'must not be null');
    END IF;
    SELECT
        v.tenant_id, v.expected_steps, v.completed_steps, v.failed_steps, v.status, v.metadata, v.created_at,
        v.last_updated_at
    INTO tenant_id, expected_steps, completed_steps, failed_steps, status, metadata, created_at, last_updated_at
    FROM {{ db.outbox_joins }} AS v
    WHERE v.join_id = $1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'join_id: no such join; it must be what join_start answered, in this schema';
    END IF;
END;
$$;
