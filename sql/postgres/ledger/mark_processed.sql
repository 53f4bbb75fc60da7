CREATE OR REPLACE FUNCTION {{ db.ledger_mark_processed }}(key text, lease_id uuid DEFAULT NULL)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Marks a key processed for good. With a lease only if it is still the key's own: run out is no matter, taken over is.
    -- key: 1 to 512 characters
    -- lease_id: the one from ledger_try_begin; null marks the key whoever holds it, and also one never seen
    -- returns: affected; 0 if it was processed before, or the lease is not the key's
    -- errors: PB001
    -- locks: message
    -- role: worker
DECLARE
    now_at timestamptz := {{ db._now }}();
    moved integer;
BEGIN
    PERFORM {{ db._ledger_check }}(key);
    IF lease_id IS NULL THEN
        INSERT INTO {{ db.ledger }} AS l (key, state, attempts, first_seen_at, last_seen_at, processed_at)
        VALUES ($1, 'Processed', 0, now_at, now_at, now_at)
        ON CONFLICT ON CONSTRAINT {{ key.pk_ledger }} DO UPDATE
        SET state = 'Processed', lease_id = NULL, lease_until = NULL, last_seen_at = now_at, processed_at = now_at
        WHERE l.state <> 'Processed';
    ELSE
        UPDATE {{ db.ledger }} AS l
        SET state = 'Processed', lease_id = NULL, lease_until = NULL, last_seen_at = now_at, processed_at = now_at
        WHERE l.key = $1 AND l.state = 'Acquired' AND l.lease_id = $2;
    END IF;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN QUERY SELECT moved;
END;
$$;
