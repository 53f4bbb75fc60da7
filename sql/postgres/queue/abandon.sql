CREATE OR REPLACE FUNCTION {{ box.abandon }}(
    owner_token uuid,
    ids bigint[],
    last_error text DEFAULT NULL,
    delay_seconds double precision DEFAULT NULL
)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Gives messages back for another try: one attempt counted, claimable again after the delay or the backoff,
    -- behind what was claimable before. Touches only what this owner holds. Does not look at max_attempts.
    -- owner_token: not the nil uuid
    -- ids: not null
    -- last_error: recorded unless null or empty, up to 16384 characters
    -- delay_seconds: above 0, at most 1000000000; null for the backoff, min(backoff_base * 2^attempt, backoff_cap)
    -- returns: affected
    -- errors: PB001
    -- locks: group, lease, message
    -- role: worker
BEGIN
    RETURN QUERY SELECT r.affected FROM {{ box.retry }}(owner_token, ids, last_error, delay_seconds, 0) AS r;
END;
$$;
