CREATE OR REPLACE FUNCTION {{ db.join_start }}(tenant_id text, expected_steps integer DEFAULT NULL, metadata text DEFAULT NULL)
RETURNS TABLE (join_id uuid)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Begins a join: a fan-in that waits for a number of messages of the outbox, its steps.
    -- tenant_id: 1 to 255 characters
    -- expected_steps: at least 1; null for an open join, which join_wait closes at the number attached by then
    -- metadata: the caller's own, kept as it is; may be null
    -- returns: join_id
    -- errors: PB001
    -- locks: none
    -- role: producer
DECLARE
    now_at CONSTANT timestamptz := {{ db._now }}();
    new_id CONSTANT uuid := {{ db._uuid }}();
BEGIN
    IF tenant_id IS NULL OR tenant_id = '' OR length(tenant_id) > 255 THEN
        PERFORM {{ db._reject }}('tenant_id', 'must have from 1 to 255 characters');
    ELSIF expected_steps < 1 THEN
        PERFORM {{ db._reject }}('expected_steps', 'must be at least 1, or null');
    END IF;
    INSERT INTO {{ db.join }} (
        join_id, tenant_id, expected_steps, completed_steps, failed_steps, status, metadata, created_at,
        last_updated_at, fail_if_any_step_failed
    )
    VALUES (new_id, $1, $2, 0, 0, 'Pending', $3, now_at, now_at, true);
    RETURN QUERY SELECT new_id;
END;
$$;

CREATE OR REPLACE FUNCTION {{ db.join_start }}(tenant_id bigint, expected_steps integer DEFAULT NULL, metadata text DEFAULT NULL)
RETURNS TABLE (join_id uuid)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Begins a join: a fan-in that waits for a number of messages of the outbox, its steps.
    -- For callers whose tenants have numbers.
    -- tenant_id: any number
    -- expected_steps: at least 1; null for an open join, which join_wait closes at the number attached by then
    -- metadata: the caller's own, kept as it is; may be null
    -- returns: join_id
    -- errors: PB001
    -- locks: none
    -- role: producer
    SELECT s.join_id FROM {{ db.join_start }}(tenant_id::text, expected_steps, metadata) AS s;
$$;
