CREATE OR REPLACE FUNCTION {{ db._join_nudge }}(join_id uuid)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Has the next claim look at a join: something has happened after which its join.wait message may be due.
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    own_xid xid8;
    now_at timestamptz;
BEGIN
    -- The xid first, then a look at the sequence, then the clock: the low marks rest on that.
    own_xid := pg_current_xact_id();
    PERFORM pg_sequence_last_value({{ db._outbox_ids | literal }});
    now_at := {{ db._now }}();
    INSERT INTO {{ db.outbox_scheduled }} (due_at, no, lane, topic, join_id, probe_xid)
    VALUES (now_at, nextval({{ db._outbox_ids | literal }}), 0, '', $1, own_xid);

    -- A hint to listeners, at most one in 20 milliseconds: NOTIFY makes commits queue up behind one another.
    IF coalesce(pg_sequence_last_value({{ db._outbox_notified | literal }}), 0) < date_part('epoch', now_at) * 1000 THEN
        PERFORM setval({{ db._outbox_notified | literal }}, (date_part('epoch', now_at) * 1000)::bigint + 20);
        PERFORM pg_notify({{ (schema ~ ".outbox") | literal }}, '');
    END IF;
END;
$$;
