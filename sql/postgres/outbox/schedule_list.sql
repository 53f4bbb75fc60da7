CREATE OR REPLACE FUNCTION {{ box.schedule_list }}()
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
AS $$
    -- Every schedule of the box, also those that are not enabled.
    -- returns: name, topic, cron, every_seconds, timezone, next_at, last_fired_at, catch_up, enabled, group_id, priority; by name
    -- errors: none
    -- locks: none
    -- role: viewer
BEGIN
    RETURN QUERY
    SELECT
        s.name, s.topic, s.cron, s.every_seconds, s.timezone, s.next_at, s.last_fired_at, s.catch_up, s.enabled,
        s.group_id, s.priority::integer
    FROM {{ box.schedules }} AS s
    ORDER BY s.name;
END;
$$;
