CREATE OR REPLACE FUNCTION {{ db.join_wait }}(
    join_id uuid,
    fail_if_any_step_failed boolean DEFAULT true,
    on_complete_topic text DEFAULT NULL,
    on_complete_payload text DEFAULT NULL,
    on_fail_topic text DEFAULT NULL,
    on_fail_payload text DEFAULT NULL
)
RETURNS TABLE (id bigint, message_id uuid)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Enqueues the message that brings a join to its end: topic join.wait, payload {"join_id": "..."}; it is parked and
    -- becomes due with the last step. Its handler calls join_resolve, which enqueues what is given here.
    -- An open join is closed: from here on it waits for the steps that it has by now. With none it is complete at once.
    -- A second call on a pending join replaces what was given, and answers the same message while that one is not over.
    -- Parked for an hour at most: that is a safety net for handlers that ask too early, and nobody polls.
    -- join_id: not null
    -- fail_if_any_step_failed: not null; false makes the join Completed whatever became of its steps
    -- on_complete_topic: 1 to 255 characters; null enqueues nothing
    -- on_complete_payload: null is an empty one
    -- on_fail_topic: 1 to 255 characters; null enqueues nothing
    -- on_fail_payload: null is an empty one
    -- returns: id, message_id
    -- errors: PB001, PB002, PB003
    -- locks: join, group, lease, message
    -- role: producer
DECLARE
    known {{ db.join }};
    attached_steps integer;
    is_complete boolean;
    now_at timestamptz;
    wait_id bigint;
    wait_message_id uuid;
BEGIN
    IF join_id IS NULL THEN
        PERFORM {{ db._reject }}('join_id', 'must not be null');
    ELSIF fail_if_any_step_failed IS NULL THEN
        PERFORM {{ db._reject }}('fail_if_any_step_failed', 'must not be null');
    ELSIF on_complete_topic = '' OR length(on_complete_topic) > 255 THEN
        PERFORM {{ db._reject }}('on_complete_topic', 'must have from 1 to 255 characters, or be null');
    ELSIF on_fail_topic = '' OR length(on_fail_topic) > 255 THEN
        PERFORM {{ db._reject }}('on_fail_topic', 'must have from 1 to 255 characters, or be null');
    END IF;
    SELECT j.* INTO known FROM {{ db.join }} AS j WHERE j.join_id = $1 FOR NO KEY UPDATE;
    IF known.join_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'join_id: no such join; it must be what join_start answered, in this schema';
    ELSIF known.status <> 'Pending' THEN
        RAISE EXCEPTION USING ERRCODE = 'PB003', MESSAGE = 'join_id: the join is ' || known.status || '; start another one';
    END IF;

    IF known.expected_steps IS NULL THEN
        -- Whoever attaches has the join's row locked, so these are all.
        attached_steps := coalesce((
            SELECT jm.no FROM {{ db.join_member }} AS jm WHERE jm.join_id = $1 ORDER BY jm.no DESC LIMIT 1
        ), 0);
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            -- All that an older snapshot shows: it is so only if the next number is free.
            BEGIN
                INSERT INTO {{ db.join_member }} (join_id, message_id, id, no, attached_at)
                VALUES ($1, gen_random_uuid(), 0, attached_steps + 1, {{ db._now }}());
                RAISE EXCEPTION USING ERRCODE = 'no_data_found';
            EXCEPTION
                WHEN no_data_found THEN NULL;
                WHEN unique_violation THEN
                    RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = 'join_id: a step was attached meanwhile; try again';
            END;
        END IF;
    END IF;
    IF {{ db._outbox_hold }}(known.wait_id) = 'pending' THEN
        wait_id := known.wait_id;
        wait_message_id := known.wait_message_id;
    ELSE
        SELECT v.completed_steps + v.failed_steps = coalesce(v.expected_steps, attached_steps) INTO is_complete
        FROM {{ db.outbox_joins }} AS v
        WHERE v.join_id = $1;
        SELECT e.id, e.message_id INTO wait_id, wait_message_id
        FROM {{ db.outbox_enqueue }}(
            'join.wait',
            jsonb_build_object('join_id', $1)::text,
            due_at => CASE WHEN NOT is_complete THEN {{ db._now }}() + interval '1 hour' END
        ) AS e;
    END IF;
    now_at := {{ db._now }}();
    UPDATE {{ db.join }} AS j
    SET
        expected_steps = coalesce(j.expected_steps, wait.attached_steps),
        wait_id = wait.id,
        wait_message_id = wait.message_id,
        fail_if_any_step_failed = $2,
        on_complete_topic = $3,
        on_complete_payload = $4,
        on_fail_topic = $5,
        on_fail_payload = $6,
        last_updated_at = now_at
    FROM (SELECT wait_id AS id, wait_message_id AS message_id, attached_steps) AS wait
    WHERE j.join_id = $1;
    -- Steps that are being settled just now are not seen here, nor is this message by who settles them: whoever looks
    -- at the join after both are committed sees both.
    PERFORM {{ db._join_nudge }}($1);
    RETURN QUERY SELECT wait_id, wait_message_id;
END;
$$;
