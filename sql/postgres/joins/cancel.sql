CREATE OR REPLACE FUNCTION {{ db.join_cancel }}(join_id uuid)
RETURNS TABLE (cancelled boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Ends a pending join without its follow-up message. Its steps go on, and go on being counted.
    -- Its join.wait message becomes due, so that a handler sees that there is nothing to wait for.
    -- join_id: not null
    -- returns: cancelled; false if it was over before
    -- errors: PB001, PB002
    -- locks: join
    -- role: producer
DECLARE
    now_at timestamptz;
    old_status text;
BEGIN
    IF join_id IS NULL THEN
        PERFORM {{ db._reject }}('join_id', 'must not be null');
    END IF;
    SELECT j.status INTO old_status FROM {{ db.join }} AS j WHERE j.join_id = $1 FOR NO KEY UPDATE;
    IF old_status IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'join_id: no such join; it must be what join_start answered, in this schema';
    END IF;
    IF old_status = 'Pending' THEN
        now_at := {{ db._now }}();
        UPDATE {{ db.join }} AS j
        SET status = 'Cancelled', finished_at = now_at, last_updated_at = now_at
        WHERE j.join_id = $1;
        PERFORM {{ db._join_nudge }}($1);
    END IF;
    RETURN QUERY SELECT old_status = 'Pending';
END;
$$;
