CREATE OR REPLACE FUNCTION {{ db.ledger_get }}(key text)
RETURNS TABLE (
    status text,
    attempts integer,
    first_seen_at timestamptz,
    last_seen_at timestamptz,
    lease_until timestamptz,
    handler text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
    -- What the ledger knows of a key; always one row. status is Unknown (never seen, or released), Acquired (also with
    -- a lease that has run out) or Processed. last_seen_at is the last time that a call changed anything.
    -- key: 1 to 512 characters
    -- returns: status, attempts, first_seen_at, last_seen_at, lease_until, handler
    -- errors: PB001
    -- locks: none
    -- role: worker, viewer
BEGIN
    PERFORM {{ db._ledger_check }}(key);
    RETURN QUERY
    SELECT l.state, l.attempts, l.first_seen_at, l.last_seen_at, l.lease_until, l.handler
    FROM {{ db.ledger }} AS l
    WHERE l.key = $1;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'Unknown', 0, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::text;
    END IF;
END;
$$;
