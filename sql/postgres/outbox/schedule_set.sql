CREATE OR REPLACE FUNCTION {{ box.schedule_set }}(
    INOUT name text,
    INOUT topic text,
    payload text,
    INOUT cron text DEFAULT NULL,
    INOUT every_seconds integer DEFAULT NULL,
    INOUT timezone text DEFAULT 'UTC',
    INOUT next_at timestamptz DEFAULT NULL,
    OUT last_fired_at timestamptz,
    INOUT catch_up integer DEFAULT 1,
    INOUT enabled boolean DEFAULT true,
    INOUT group_id text DEFAULT NULL,
    INOUT priority integer DEFAULT 0,
    headers jsonb DEFAULT NULL
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Sets a schedule: a message that is enqueued again and again, by a rule or every so many seconds. One of the same name
    -- is replaced whole, but keeps its next time if its rule is the same and none is given, and when it last fired.
    -- Neither the rule nor the zone is read here: who fires it does, and passes over a schedule that it cannot read.
    -- name: 1 to 255 characters
    -- topic: 1 to 255 characters
    -- payload: not null; may be empty
    -- cron: five fields, 1 to 255 characters; this or every_seconds
    -- every_seconds: from 1 to 1000000000
    -- timezone: of the cron text, an IANA name of 1 to 255 characters
    -- next_at: the first planned time, before the year 9000; null is a period from now, and for a cron text left to whoever works it out
    -- catch_up: how many missed times are made up for, from 0 to 10000
    -- enabled: false keeps it without firing; one that is enabled again begins anew
    -- group_id: FIFO key of its messages, 1 to 255 characters
    -- priority: of its messages, from -32768 to 32767
    -- headers: of its messages, a JSON object
    -- returns: name, topic, cron, every_seconds, timezone, next_at, last_fired_at, catch_up, enabled, group_id, priority
    -- errors: PB001
    -- locks: message
    -- role: operator
#variable_conflict use_variable
DECLARE
    now_at timestamptz;
BEGIN
    priority := coalesce(priority, 0);
    timezone := coalesce(timezone, 'UTC');
    catch_up := coalesce(catch_up, 1);
    enabled := coalesce(enabled, true);
    IF name IS NULL OR name = '' OR length(name) > 255 THEN
        PERFORM {{ db._reject }}('name', 'must have from 1 to 255 characters');
    ELSIF {{ box._valid }}(topic, payload, NULL, NULL, NULL, group_id, priority, NULL, NULL, headers, NULL, NULL) IS NOT TRUE THEN
        PERFORM {{ box._explain }}(topic, payload, NULL, NULL, NULL, group_id, priority, NULL, NULL, headers, NULL, NULL);
    ELSIF num_nonnulls(cron, every_seconds) <> 1 THEN
        PERFORM {{ db._reject }}('cron', 'must be given, or every_seconds, and not both');
    ELSIF cron = '' OR length(cron) > 255 THEN
        PERFORM {{ db._reject }}('cron', 'must have from 1 to 255 characters');
    ELSIF every_seconds NOT BETWEEN 1 AND 1000000000 THEN
        PERFORM {{ db._reject }}('every_seconds', 'must be from 1 to 1000000000');
    ELSIF timezone = '' OR length(timezone) > 255 THEN
        PERFORM {{ db._reject }}('timezone', 'must have from 1 to 255 characters');
    ELSIF next_at < '0001-01-01 00:00:00+00' OR next_at >= '9000-01-01 00:00:00+00' THEN
        PERFORM {{ db._reject }}('next_at', 'must be of the years 1 to 8999');
    ELSIF catch_up NOT BETWEEN 0 AND 10000 THEN
        PERFORM {{ db._reject }}('catch_up', 'must be from 0 to 10000');
    END IF;
    now_at := {{ db._now }}();
    INSERT INTO {{ box.schedules }} AS s (
        name, topic, payload, cron, every_seconds, timezone, next_at, catch_up, enabled, group_id, priority, headers
    )
    VALUES (
        name, topic, payload, cron, every_seconds, timezone, coalesce(next_at, now_at + make_interval(secs => every_seconds)),
        catch_up, enabled, group_id, priority, headers
    )
    ON CONFLICT ON CONSTRAINT {{ key.pk_schedules }} DO UPDATE
    SET
        topic = excluded.topic,
        payload = excluded.payload,
        cron = excluded.cron,
        every_seconds = excluded.every_seconds,
        timezone = excluded.timezone,
        next_at = CASE
            WHEN next_at IS NULL
                AND s.cron IS NOT DISTINCT FROM excluded.cron
                AND s.every_seconds IS NOT DISTINCT FROM excluded.every_seconds
                AND s.timezone = excluded.timezone
                AND (s.enabled OR NOT excluded.enabled)
                THEN s.next_at
            ELSE excluded.next_at
        END,
        catch_up = excluded.catch_up,
        enabled = excluded.enabled,
        group_id = excluded.group_id,
        priority = excluded.priority,
        headers = excluded.headers
    RETURNING
        s.name, s.topic, s.cron, s.every_seconds, s.timezone, s.next_at, s.last_fired_at, s.catch_up, s.enabled,
        s.group_id, s.priority::integer
    INTO
        name, topic, cron, every_seconds, timezone, next_at, last_fired_at, catch_up, enabled, group_id, priority;
END;
$$;
