CREATE OR REPLACE FUNCTION {{ box.schedule_due }}("limit" integer DEFAULT 100)
RETURNS TABLE (
    name text,
    topic text,
    cron text,
    every_seconds integer,
    timezone text,
    next_at timestamptz,
    last_fired_at timestamptz,
    catch_up integer,
    enabled boolean,
    group_id text,
    priority integer
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- The schedules whose next time has come, and before them those whose next time is still to be worked out.
    -- They are locked until the caller's transaction ends; those that somebody else has locked are passed over.
    -- limit: from 1 to 10000
    -- returns: name, topic, cron, every_seconds, timezone, next_at, last_fired_at, catch_up, enabled, group_id, priority; by next_at, null first, and name
    -- errors: PB001
    -- locks: message
    -- role: worker
DECLARE
    now_at CONSTANT timestamptz := {{ db._now }}();
    unplanned integer;
BEGIN
    IF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    END IF;
    -- In two steps: an index begins with nulls or with times, as it is asked.
    RETURN QUERY
    SELECT
        s.name, s.topic, s.cron, s.every_seconds, s.timezone, s.next_at, s.last_fired_at, s.catch_up, s.enabled,
        s.group_id, s.priority::integer
    FROM {{ box.schedules }} AS s
    WHERE s.enabled AND s.next_at IS NULL
    ORDER BY s.name
    LIMIT "limit"
    FOR NO KEY UPDATE OF s SKIP LOCKED;
    GET DIAGNOSTICS unplanned = ROW_COUNT;
    RETURN QUERY
    SELECT
        s.name, s.topic, s.cron, s.every_seconds, s.timezone, s.next_at, s.last_fired_at, s.catch_up, s.enabled,
        s.group_id, s.priority::integer
    FROM {{ box.schedules }} AS s
    WHERE s.enabled AND s.next_at <= now_at
    ORDER BY s.next_at, s.name
    LIMIT "limit" - unplanned
    FOR NO KEY UPDATE OF s SKIP LOCKED;
END;
$$;
