CREATE OR REPLACE FUNCTION {{ db.join_resolve }}(
    join_id uuid,
    OUT status text,
    OUT completed_steps integer,
    OUT failed_steps integer,
    OUT expected_steps integer,
    OUT enqueued_message_id uuid
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Ends a join whose steps are all over, and enqueues what join_wait was given for that: what a join.wait handler calls.
    -- Exactly one of any number of callers ends it and enqueues; the others, later ones too, get the same answer.
    -- Before the last step, and as long as the join is open, it answers Pending and writes nothing; of a cancelled join it answers Cancelled.
    -- join_id: not null
    -- returns: status, completed_steps, failed_steps, expected_steps, enqueued_message_id; the last null if none was enqueued
    -- errors: PB001, PB002
    -- locks: join, message
    -- role: worker
DECLARE
    known {{ db.join }};
    new_topic text;
    new_payload text;
    now_at timestamptz;
BEGIN
    IF join_id IS NULL THEN
        PERFORM {{ db._reject }}('join_id', 'must not be null');
    END IF;
    SELECT j.* INTO known FROM {{ db.join }} AS j WHERE j.join_id = $1 FOR NO KEY UPDATE;
    IF known.join_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'join_id: no such join; it must be what join_start answered, in this schema';
    END IF;
    -- A statement of its own: what was committed while this one waited for the join counts.
    SELECT v.status, v.completed_steps, v.failed_steps, v.expected_steps, v.enqueued_message_id
    INTO status, completed_steps, failed_steps, expected_steps, enqueued_message_id
    FROM {{ db.outbox_joins }} AS v
    WHERE v.join_id = $1;
    IF status <> 'Pending' OR expected_steps IS NULL OR completed_steps + failed_steps < expected_steps THEN
        RETURN;
    END IF;

    IF known.fail_if_any_step_failed AND failed_steps > 0 THEN
        status := 'Failed';
        new_topic := known.on_fail_topic;
        new_payload := known.on_fail_payload;
    ELSE
        status := 'Completed';
        new_topic := known.on_complete_topic;
        new_payload := known.on_complete_payload;
    END IF;
    IF new_topic IS NOT NULL THEN
        SELECT e.message_id INTO enqueued_message_id
        FROM {{ db.outbox_enqueue }}(new_topic, coalesce(new_payload, '')) AS e;
    END IF;
    PERFORM {{ db._join_compact }}($1);
    now_at := {{ db._now }}();
    UPDATE {{ db.join }} AS j
    SET
        status = answer.status,
        enqueued_message_id = answer.enqueued_message_id,
        finished_at = now_at,
        last_updated_at = now_at
    FROM (SELECT join_resolve.status, join_resolve.enqueued_message_id) AS answer
    WHERE j.join_id = $1;
END;
$$;
