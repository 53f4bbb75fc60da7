{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._renew }}(
    message {{ box.message }},
    OUT id bigint,
    OUT outcome text,
    OUT hash_mismatch boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Enqueues a message whose key exists and is locked by the caller. What is done stays as it is, what is dead stays
    -- dead; what was only seen is placed; what waits takes the new content, and a new place if its time, topic or
    -- priority changed. A message that somebody works on takes the new content for its next try.
    -- returns: id, outcome, hash_mismatch; outcome is updated, done or created
    -- errors: none
    -- locks: group, message
    -- role: internal
DECLARE
    old {{ box.message }};
    now_at timestamptz := {{ db._now }}();
    was_seen boolean;
    moves boolean;
    taken bigint[] := '{}';
BEGIN
    SELECT m.* INTO old
    FROM {{ box.message }} AS m
    WHERE m.source = message.source AND m.message_id = message.message_id;
    IF NOT FOUND THEN
        -- Another message of the same batch has collapsed it away: then this is a new one.
        INSERT INTO {{ box.message }}
        SELECT message.*;
        id := message.id;
        outcome := 'created';
        hash_mismatch := false;
        PERFORM {{ box._admit }}(ARRAY[message.id]);
        IF message.collapse_key IS NOT NULL THEN
            PERFORM {{ box._replace }}(ARRAY[message.collapse_key], ARRAY[message.id]);
        END IF;
        RETURN;
    END IF;
    id := old.id;
    hash_mismatch := coalesce(old.hash <> message.hash, false);
    IF {{ queue.is_done("old.id") }} THEN
        outcome := 'done';
        RETURN;
    END IF;
    outcome := 'updated';

    DELETE FROM {{ box.seen }} AS s WHERE s.id = old.id;
    was_seen := FOUND;
    moves := (old.due_at > now_at OR message.due_at > now_at OR old.topic <> message.topic
        OR old.priority <> message.priority OR old.expires_at IS DISTINCT FROM message.expires_at
        -- due, but not yet promoted: its place has the old time
        OR EXISTS (SELECT FROM {{ box.scheduled }} AS s WHERE s.due_at = old.due_at AND s.no = old.id)) IS TRUE;
    IF moves AND NOT was_seen THEN
        taken := {{ box._withdraw }}(ARRAY[old.id]);
    END IF;

    UPDATE {{ box.message }} AS m
    SET
        topic = message.topic, payload = message.payload, hash = message.hash, due_at = message.due_at,
        priority = message.priority, headers = message.headers, expires_at = message.expires_at,
        group_id = CASE WHEN was_seen THEN message.group_id ELSE m.group_id END,
        collapse_key = CASE WHEN was_seen THEN message.collapse_key ELSE m.collapse_key END,
        last_seen_at = now_at
    WHERE m.id = old.id;

    IF was_seen THEN
        {{ queue.come_back("old.id") }};
        -- Under a ticket of its own: the mark may have passed its id, and it may come before members of its group.
        PERFORM {{ box._put_back }}(ARRAY[old.id]);
        IF message.collapse_key IS NOT NULL THEN
            PERFORM {{ box._replace }}(ARRAY[message.collapse_key], ARRAY[old.id]);
        END IF;
    ELSIF taken <> '{}' THEN
        PERFORM {{ box._put_back }}(taken);
    ELSIF old.topic IS DISTINCT FROM message.topic THEN
        -- Skipping what is just being settled, replayed or discarded: its owner may be waiting for the message.
        UPDATE {{ box.lease }} AS l
        SET topic = message.topic
        WHERE l.ctid = ANY (ARRAY(
            SELECT c.ctid FROM {{ box.lease }} AS c WHERE c.id = old.id FOR UPDATE SKIP LOCKED
        ));
        SELECT d.topic INTO old.topic FROM {{ box.dead }} AS d WHERE d.id = old.id FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE {{ box.dead }} AS d SET topic = message.topic WHERE d.id = old.id;
            INSERT INTO {{ box.tally }} (no, topic, done, dead)
            SELECT nextval({{ box._ids | literal }}), t.topic, 0, t.dead
            FROM (VALUES (old.topic, -1), (message.topic, 1)) AS t (topic, dead)
            WHERE t.topic IS NOT NULL;
        END IF;
    END IF;
END;
$$;
