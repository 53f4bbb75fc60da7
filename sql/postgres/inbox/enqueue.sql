{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.enqueue }}(
    topic text,
    source text,
    message_id text,
    payload text,
    hash bytea DEFAULT NULL,
    due_at timestamptz DEFAULT NULL,
    group_id text DEFAULT NULL,
    priority integer DEFAULT 0,
    collapse_key text DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    received_at timestamptz DEFAULT NULL,
    delay_seconds double precision DEFAULT NULL,
    OUT id bigint,
    OUT outcome text,
    OUT hash_mismatch boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Takes one message in, once per source and message_id, in the caller's transaction. A repeated one that is not
    -- done brings its new topic, payload, hash, due time, priority, headers and expiry; a done one stays untouched.
    -- topic: 1 to 255 characters
    -- source: 1 to 255 characters
    -- message_id: the sender's, 1 to 255 characters
    -- payload: not null; may be empty
    -- hash: a different one than before sets hash_mismatch
    -- due_at: not handed out before; null or past is now
    -- group_id: FIFO key, 1 to 255 characters
    -- priority: from -32768 to 32767, higher first
    -- collapse_key: 1 to 255 characters; replaces older waiting messages with the same key
    -- expires_at: not handed out from then on
    -- headers: a JSON object
    -- received_at: a migrated message's own time, kept as first_seen_at; null is now
    -- delay_seconds: in place of due_at, seconds from now by the server's clock; from 0, which is now, to 1000000000
    -- returns: id, outcome, hash_mismatch; outcome is created, collapsed, updated or done
    -- errors: PB001
    -- locks: group, message
    -- role: producer
DECLARE
    now_at timestamptz;
    level integer := coalesce(priority, 0);
BEGIN
    IF {{ box._valid }}(topic, payload, source, message_id, due_at, group_id, level, collapse_key, expires_at, headers,
        received_at, delay_seconds) IS NOT TRUE
    THEN
        PERFORM {{ box._explain }}(topic, payload, source, message_id, due_at, group_id, level, collapse_key, expires_at,
            headers, received_at, delay_seconds);
    END IF;
    -- First the xid, then the number, then the clock: the low marks rest on that.
    PERFORM pg_current_xact_id();
    id := nextval({{ box._ids | literal }});
    now_at := {{ db._now }}();
    IF delay_seconds > 0 THEN
        due_at := now_at + make_interval(secs => delay_seconds);
    END IF;
    {{ queue.enter_lane("level") }};

    IF group_id IS NULL AND collapse_key IS NULL THEN
        INSERT INTO {{ box.message }} (
            id, first_seen_at, last_seen_at, due_at, expires_at, attempt, priority, source, message_id, topic, payload,
            hash, headers
        )
        VALUES (
            id, coalesce(received_at, now_at), now_at, due_at, expires_at, 0, level, source, message_id, topic, payload,
            hash, headers
        )
        ON CONFLICT ON CONSTRAINT {{ key.uq_message_key }} DO NOTHING;
        IF FOUND THEN
            outcome := 'created';
            hash_mismatch := false;
            IF due_at > now_at THEN
                INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic)
                VALUES (due_at, id, id, expires_at, -level, topic);
            ELSE
                INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic)
                VALUES (-level, id, id, expires_at, topic);
            END IF;
        END IF;
    END IF;
    IF outcome IS NULL THEN
        SELECT e.id, e.outcome, e.hash_mismatch
        INTO id, outcome, hash_mismatch
        FROM {{ box._enqueue }}(ARRAY[ROW(
            id, coalesce(received_at, now_at), now_at, due_at, expires_at, 0, level, source, message_id, topic, payload,
            hash, group_id, collapse_key, headers, NULL
        )::{{ box.message }}]) AS e;
    END IF;

    {{ queue.notify() }};
END;
$$;
