CREATE OR REPLACE FUNCTION {{ db.ledger_cleanup }}(retention_seconds double precision, batch_size integer DEFAULT 1000)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Forgets up to batch_size keys, oldest first: processed longer ago than the retention, or released or with a lease
    -- that has run out, and not seen since. Never a key that somebody holds, nor one acquired without expiry.
    -- One short transaction that skips locked rows; call it until it answers 0.
    -- retention_seconds: from 0 to 1000000000
    -- batch_size: from 1 to 10000
    -- returns: affected
    -- errors: PB001
    -- locks: message
    -- role: worker
DECLARE
    now_at timestamptz := {{ db._now }}();
    moved integer;
BEGIN
    PERFORM {{ db._check_cleanup }}(retention_seconds, batch_size);
    DELETE FROM {{ db.ledger }} AS l
    WHERE l.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM {{ db.ledger }} AS c
        WHERE c.last_seen_at <= now_at - make_interval(secs => retention_seconds)
            -- As the index has it, so that it is used; then what of that may go.
            AND (c.state <> 'Acquired' OR c.lease_until IS NOT NULL)
            AND (c.state <> 'Acquired' OR c.lease_until <= now_at)
        ORDER BY c.last_seen_at
        LIMIT batch_size
        FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN QUERY SELECT moved;
END;
$$;
