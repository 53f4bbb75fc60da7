CREATE OR REPLACE FUNCTION {{ db._join_report }}(join_id uuid, message_id uuid, state text)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Counts a step that is not counted yet, whatever its message does later.
    -- state: completed or failed
    -- returns: boolean; whether it was counted
    -- errors: PB001, PB002
    -- locks: group, lease, message
    -- role: internal
DECLARE
    work_id bigint;
BEGIN
    IF join_id IS NULL THEN
        PERFORM {{ db._reject }}('join_id', 'must not be null');
    ELSIF message_id IS NULL THEN
        PERFORM {{ db._reject }}('message_id', 'must not be null');
    END IF;
    SELECT jm.id INTO work_id FROM {{ db.join_member }} AS jm WHERE jm.join_id = $1 AND jm.message_id = $2;
    IF work_id IS NULL THEN
        IF EXISTS (SELECT FROM {{ db.join }} AS j WHERE j.join_id = $1) THEN
            RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'message_id: not a step of this join; attach it first';
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'join_id: no such join; it must be what join_start answered, in this schema';
    END IF;

    -- One that is over was counted by that. Of one that is not, nobody else can decide before this transaction ends.
    IF {{ db._outbox_hold }}(work_id) = 'pending' THEN
        UPDATE {{ db.join_member }} AS jm
        SET counted = state
        WHERE jm.join_id = $1 AND jm.message_id = $2 AND jm.counted IS NULL;
        IF FOUND THEN
            PERFORM {{ db._join_step }}($1, state);
            RETURN true;
        END IF;
    END IF;
    RETURN false;
END;
$$;
