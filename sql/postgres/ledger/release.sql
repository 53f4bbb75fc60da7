CREATE OR REPLACE FUNCTION {{ db.ledger_release }}(key text, lease_id uuid)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Gives a key back unprocessed, for anybody to acquire. Its attempts stay.
    -- key: 1 to 512 characters
    -- lease_id: not null
    -- returns: affected; 0 if the lease is not the key's any more
    -- errors: PB001
    -- locks: message
    -- role: worker
DECLARE
    now_at timestamptz := {{ db._now }}();
    moved integer;
BEGIN
    PERFORM {{ db._ledger_check }}(key);
    IF lease_id IS NULL THEN
        PERFORM {{ db._reject }}('lease_id', 'must not be null');
    END IF;
    UPDATE {{ db.ledger }} AS l
    SET state = 'Unknown', lease_id = NULL, lease_until = NULL, last_seen_at = now_at
    WHERE l.key = $1 AND l.state = 'Acquired' AND l.lease_id = $2;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN QUERY SELECT moved;
END;
$$;
