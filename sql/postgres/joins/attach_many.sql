{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ db.join_attach_many }}(join_id uuid, message_ids uuid[])
RETURNS TABLE (attached integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Makes messages of the outbox steps of a join, all or none, as join_attach does with one: those that are over already
    -- count at once, those attached before are passed over. Its cost is that of the messages, however large the join is.
    -- What others may be working on is taken hold of in id order. What the transaction has enqueued itself nobody else can
    -- see, so attaching that in the same transaction costs least.
    -- join_id: not null
    -- message_ids: not null, and none of them null; repeated ones count once
    -- returns: attached; how many were not attached before
    -- errors: PB001, PB002, PB003
    -- locks: join, group, lease, message
    -- role: producer
DECLARE
    now_at timestamptz;
    known {{ db.join }};
    attached_steps integer;
    new_ids uuid[];
    work_ids bigint[];
    states text[];
    unknown bigint;
    completed integer;
    failed integer;
BEGIN
    IF join_id IS NULL THEN
        PERFORM {{ db._reject }}('join_id', 'must not be null');
    ELSIF message_ids IS NULL OR array_position(message_ids, NULL) IS NOT NULL THEN
        PERFORM {{ db._reject }}('message_ids', 'must not be null, nor any of them');
    END IF;
    SELECT j.* INTO known FROM {{ db.join }} AS j WHERE j.join_id = $1 FOR NO KEY UPDATE;
    IF known.join_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'join_id: no such join; it must be what join_start answered, in this schema';
    END IF;

    -- In id order. OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
    SELECT array_agg(f.message_id ORDER BY f.id), array_agg(f.id ORDER BY f.id), count(*) FILTER (WHERE f.id IS NULL)
    INTO new_ids, work_ids, unknown
    FROM (
        SELECT
            u.message_id,
            coalesce(
                (SELECT m.id FROM {{ db.outbox_message }} AS m WHERE m.message_id = u.message_id AND m.is_given OFFSET 0),
                (
                    SELECT m.id FROM {{ db.outbox_message }} AS m
                    WHERE m.id = {{ "u.message_id" | drawn_id }} AND m.message_id = u.message_id
                    OFFSET 0
                )
            ) AS id
        FROM (SELECT DISTINCT i.message_id FROM unnest(message_ids) AS i (message_id)) AS u
        WHERE NOT EXISTS (
            SELECT FROM {{ db.join_member }} AS jm WHERE jm.join_id = $1 AND jm.message_id = u.message_id OFFSET 0
        )
    ) AS f;
    IF new_ids IS NULL THEN
        RETURN QUERY SELECT 0;
        RETURN;
    END IF;

    IF unknown = 0 THEN
        -- Those that are over, and those that this transaction has put where they are, are seen at once.
        SELECT array_agg(
            CASE
                WHEN {{ queue.is_done("m.id", db.outbox_done) | indent(8) }} THEN 'completed'
                WHEN EXISTS (SELECT FROM {{ db.outbox_dead }} AS d WHERE d.id = m.id OFFSET 0) THEN 'failed'
                WHEN r.is_own THEN 'pending'
            END
            ORDER BY u.place)
        INTO states
        FROM unnest(work_ids) WITH ORDINALITY AS u (id, place)
        LEFT JOIN LATERAL (
            SELECT w.id, w.priority FROM {{ db.outbox_message }} AS w WHERE w.id = u.id OFFSET 0
        ) AS m ON true
        LEFT JOIN LATERAL (
            SELECT f.id + f.span > m.id AND f.xmin = pg_current_xact_id_if_assigned()::xid AS is_own
            FROM {{ db.outbox_ready }} AS f
            WHERE f.lane = 0 - m.priority AND f.ticket <= m.id AND f.ticket > m.id - 64 AND f.id = f.ticket
            ORDER BY f.lane DESC, f.ticket DESC
            LIMIT 1
        ) AS r ON true;
        FOR place IN 1..cardinality(work_ids) LOOP
            IF states[place] IS NULL THEN
                states[place] := {{ db._outbox_hold }}(work_ids[place]);
                unknown := unknown + CASE WHEN states[place] IS NULL THEN 1 ELSE 0 END;
            END IF;
        END LOOP;
    END IF;
    IF unknown > 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'message_ids: no such message; each must be one of this outbox, enqueued before or in this transaction';
    ELSIF known.status <> 'Pending' THEN
        RAISE EXCEPTION USING ERRCODE = 'PB003', MESSAGE = 'join_id: the join is ' || known.status || '; start another one';
    END IF;
    -- Whoever attaches has the join's row locked, so this is the last.
    attached_steps := coalesce((
        SELECT jm.no FROM {{ db.join_member }} AS jm WHERE jm.join_id = $1 ORDER BY jm.no DESC LIMIT 1
    ), 0);
    IF attached_steps + cardinality(work_ids) > known.expected_steps THEN
        RAISE EXCEPTION USING ERRCODE = 'PB003', MESSAGE = 'join_id: more than the expected steps would be attached; start the join with more, or without a number';
    END IF;

    now_at := {{ db._now }}();
    INSERT INTO {{ db.join_member }} (join_id, message_id, id, no, counted, attached_at)
    SELECT $1, u.message_id, u.id, attached_steps + u.place, nullif(u.state, 'pending'), now_at
    FROM unnest(new_ids, work_ids, states) WITH ORDINALITY AS u (message_id, id, state, place)
    -- Only for a snapshot older than the last step, as in join_attach.
    ON CONFLICT DO NOTHING;
    SELECT count(*) FILTER (WHERE u.state = 'completed'), count(*) FILTER (WHERE u.state = 'failed')
    INTO completed, failed
    FROM unnest(states) AS u (state);
    IF completed + failed > 0 THEN
        INSERT INTO {{ db.join_tally }} (join_id, completed, failed, created_at)
        SELECT $1, c.completed, c.failed, now_at FROM (SELECT completed, failed) AS c;
        PERFORM {{ db._join_nudge }}($1);
    END IF;
    RETURN QUERY SELECT cardinality(work_ids);
END;
$$;
