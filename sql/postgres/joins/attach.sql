CREATE OR REPLACE FUNCTION {{ db.join_attach }}(join_id uuid, message_id uuid)
RETURNS TABLE (attached boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Makes a message of the outbox a step of a join, up to the number that it expects. One that is over already counts
    -- at once. An open join takes any number until it is closed.
    -- Until the transaction ends nobody can settle or claim the message: who settles it then finds the step. So within
    -- one transaction attach messages that others may be working on in id order.
    -- join_id: not null
    -- message_id: not null
    -- returns: attached; false if it was attached before
    -- errors: PB001, PB002, PB003
    -- locks: join, group, lease, message
    -- role: producer
DECLARE
    now_at timestamptz;
    known {{ db.join }};
    attached_steps integer;
    work_id bigint;
    state text;
BEGIN
    IF join_id IS NULL THEN
        PERFORM {{ db._reject }}('join_id', 'must not be null');
    ELSIF message_id IS NULL THEN
        PERFORM {{ db._reject }}('message_id', 'must not be null');
    END IF;
    SELECT j.* INTO known FROM {{ db.join }} AS j WHERE j.join_id = $1 FOR NO KEY UPDATE;
    IF known.join_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'join_id: no such join; it must be what join_start answered, in this schema';
    END IF;
    IF EXISTS (SELECT FROM {{ db.join_member }} AS jm WHERE jm.join_id = $1 AND jm.message_id = $2) THEN
        RETURN QUERY SELECT false;
        RETURN;
    END IF;

    SELECT m.id INTO work_id FROM {{ db.outbox_message }} AS m WHERE m.message_id = $2 AND m.is_given;
    IF work_id IS NULL THEN
        SELECT m.id INTO work_id FROM {{ db.outbox_message }} AS m WHERE m.id = {{ "$2" | drawn_id }} AND m.message_id = $2;
    END IF;
    state := {{ db._outbox_hold }}(work_id);
    IF state IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'message_id: no such message; it must be one of this outbox, enqueued before or in this transaction';
    ELSIF known.status <> 'Pending' THEN
        RAISE EXCEPTION USING ERRCODE = 'PB003', MESSAGE = 'join_id: the join is ' || known.status || '; start another one';
    END IF;
    -- Whoever attaches has the join's row locked, so this is the last.
    attached_steps := coalesce((
        SELECT jm.no FROM {{ db.join_member }} AS jm WHERE jm.join_id = $1 ORDER BY jm.no DESC LIMIT 1
    ), 0);
    IF attached_steps >= known.expected_steps THEN
        RAISE EXCEPTION USING ERRCODE = 'PB003', MESSAGE = 'join_id: all expected steps are attached; start the join with more, or without a number';
    END IF;

    now_at := {{ db._now }}();
    INSERT INTO {{ db.join_member }} (join_id, message_id, id, no, counted, attached_at)
    VALUES ($1, $2, work_id, attached_steps + 1, nullif(state, 'pending'), now_at)
    -- Only for a snapshot older than the last step: it then fails as a serialization, not as a duplicate.
    ON CONFLICT DO NOTHING;
    IF state <> 'pending' THEN
        PERFORM {{ db._join_step }}($1, state);
    END IF;
    RETURN QUERY SELECT true;
END;
$$;
