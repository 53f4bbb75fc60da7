CREATE OR REPLACE FUNCTION {{ db.worker_cleanup }}(retention_seconds numeric, batch_size integer DEFAULT 1000)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Forgets up to batch_size workers that were not seen for longer than the retention, longest ago first.
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
    DELETE FROM {{ db.worker }} AS a
    WHERE a.owner_token = ANY (ARRAY(
        SELECT c.owner_token
        FROM {{ db.worker }} AS c
        WHERE c.seen_at <= now_at - make_interval(secs => retention_seconds::double precision)
        ORDER BY c.seen_at
        LIMIT batch_size
        FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN QUERY SELECT moved;
END;
$$;
