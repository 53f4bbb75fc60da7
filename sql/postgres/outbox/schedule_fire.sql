CREATE OR REPLACE FUNCTION {{ box.schedule_fire }}(name text, due_at timestamptz, next_at timestamptz DEFAULT NULL)
RETURNS TABLE (fired boolean, id bigint, message_id uuid)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Enqueues a schedule's message and moves the schedule on, if it still stands at due_at and is enabled: of any number
    -- of callers exactly one fires a planned time. Who comes while another one is at it waits for the end of that
    -- transaction; if it is rolled back the schedule stands where it stood.
    -- The message has the planned time in the header scheduled_for, as in 2026-11-19T03:00:00Z.
    -- name: not null
    -- due_at: the planned time that is fired, as schedule_due answers it; not null
    -- next_at: the next one, after due_at and before the year 9000; null is a period after due_at, and for a cron text left to whoever works it out
    -- returns: fired, id, message_id; false and nulls if it stands elsewhere, is not enabled or gone
    -- errors: PB001
    -- locks: group, message
    -- role: worker
DECLARE
    found {{ box.schedules }};
BEGIN
    IF name IS NULL THEN
        PERFORM {{ db._reject }}('name', 'must not be null');
    ELSIF due_at IS NULL THEN
        PERFORM {{ db._reject }}('due_at', 'must not be null');
    ELSIF next_at <= due_at OR next_at >= '9000-01-01 00:00:00+00' THEN
        PERFORM {{ db._reject }}('next_at', 'must be after due_at, and before the year 9000');
    END IF;
    UPDATE {{ box.schedules }} AS s
    SET
        next_at = coalesce($3, $2 + make_interval(secs => s.every_seconds)),
        last_fired_at = {{ db._now }}()
    WHERE s.name = $1 AND s.next_at = $2 AND s.enabled
    RETURNING s.* INTO found;
    IF found.name IS NULL THEN
        RETURN QUERY SELECT false, NULL::bigint, NULL::uuid;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT true, e.id, e.message_id
    FROM {{ box.enqueue }}(
        found.topic,
        found.payload,
        group_id => found.group_id,
        priority => found.priority,
        headers => coalesce(found.headers, '{}') || jsonb_build_object(
            'scheduled_for',
            to_char($2 AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
            || CASE WHEN date_trunc('second', $2) <> $2 THEN to_char($2, '.US') ELSE '' END || 'Z'
        )
    ) AS e;
END;
$$;
