{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.enqueue }}(
    topic text,
    payload text,
    correlation_id text DEFAULT NULL,
    due_at timestamptz DEFAULT NULL,
    OUT id bigint,
    INOUT message_id uuid DEFAULT NULL,
    group_id text DEFAULT NULL,
    priority integer DEFAULT 0,
    dedup_key text DEFAULT NULL,
    collapse_key text DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    created_at timestamptz DEFAULT NULL,
    delay_seconds double precision DEFAULT NULL,
    OUT outcome text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Writes one message, in the caller's transaction: it is there exactly if that commits.
    -- A plain insert for its neighbours: only enqueues of the same key ever wait for each other.
    -- topic: 1 to 255 characters
    -- payload: not null; may be empty
    -- correlation_id: up to 255 characters
    -- due_at: not handed out before; null or past is now
    -- message_id: not the nil uuid; one that exists makes the call a duplicate; null draws a time-ordered one
    -- group_id: FIFO key, 1 to 255 characters
    -- priority: from -32768 to 32767, higher first
    -- dedup_key: 1 to 255 characters; a second one within dedup_window_seconds is a duplicate
    -- collapse_key: 1 to 255 characters; replaces older waiting messages with the same key
    -- expires_at: not handed out from then on
    -- headers: a JSON object
    -- created_at: a migrated message's own time; null is now
    -- delay_seconds: in place of due_at, seconds from now by the server's clock; from 0, which is now, to 1000000000
    -- returns: id, message_id, outcome; outcome is created, collapsed or duplicate
    -- errors: PB001
    -- locks: group, message
    -- role: producer
#variable_conflict use_column
DECLARE
    now_at timestamptz;
    level integer := coalesce(priority, 0);
    given CONSTANT uuid := message_id;
    old_id bigint;
    -- What nearly all messages are: placed at once at the tail of the log, however much is told about them. Their way is a
    -- short one, because whatever expression is evaluated is prepared anew in each transaction, which costs more than
    -- evaluating it. No setting but the path either, each costs as much: what would need one is in a routine of its own.
    is_plain CONSTANT boolean := num_nonnulls(
        message_id, due_at, group_id, dedup_key, collapse_key, expires_at, created_at, delay_seconds
    ) = 0 AND priority = 0 AND topic <> '' AND length(topic) <= 255 AND payload IS NOT NULL
        AND (correlation_id IS NULL OR length(correlation_id) <= 255)
        AND (headers IS NULL OR jsonb_typeof(headers) = 'object');
BEGIN
    IF is_plain IS NOT TRUE THEN
        IF {{ box._valid }}(topic, payload, correlation_id, dedup_key, due_at, group_id, level, collapse_key, expires_at,
            headers, created_at, delay_seconds) IS NOT TRUE
        THEN
            PERFORM {{ box._explain }}(topic, payload, correlation_id, dedup_key, due_at, group_id, level, collapse_key,
                expires_at, headers, created_at, delay_seconds);
        ELSIF message_id = '00000000-0000-0000-0000-000000000000' THEN
            PERFORM {{ db._reject }}('message_id', 'must not be the nil uuid');
        END IF;
    END IF;
    -- First the xid, then the number, then the clock: the low marks rest on that.
    id := CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval({{ box._ids | literal }}) END;
    now_at := {{ db._now }}();
    outcome := 'created';

    IF is_plain THEN
        -- One that was drawn just now exists nowhere.
        message_id := {{ "id" | drawn_message_id("now_at" | message_id_stem) }};
        INSERT INTO {{ box.message }} (
            id, message_id, created_at, attempt, priority, topic, payload, correlation_id, headers
        )
        VALUES (id, message_id, now_at, 0, 0, topic, payload, correlation_id, headers);
        INSERT INTO {{ box.ready }} (lane, ticket, id, topic) VALUES (0, id, id, topic);
        {{ queue.notify() }};
        RETURN;
    END IF;

    IF delay_seconds > 0 THEN
        due_at := now_at + make_interval(secs => delay_seconds);
    END IF;
    {{ queue.enter_lane("level") }};
    message_id := coalesce(message_id, {{ "id" | drawn_message_id("now_at" | message_id_stem) }});

    IF group_id IS NULL AND dedup_key IS NULL AND collapse_key IS NULL THEN
        IF given IS NULL THEN
            -- One that was drawn just now exists nowhere.
            INSERT INTO {{ box.message }} (
                id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id, headers
            )
            VALUES (
                id, message_id, coalesce(created_at, now_at), due_at, expires_at, 0, level, topic, payload,
                correlation_id, headers
            );
        ELSE
            -- It may be one that was drawn here for an earlier message; those are not in the index.
            old_id := {{ box._known }}(given, is_given => false);
            IF old_id IS NULL THEN
                INSERT INTO {{ box.message }} (
                    id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id,
                    headers, is_given
                )
                VALUES (
                    id, message_id, coalesce(created_at, now_at), due_at, expires_at, 0, level, topic, payload,
                    correlation_id, headers, true
                )
                ON CONFLICT (message_id) WHERE is_given DO NOTHING;
                IF NOT FOUND THEN
                    old_id := coalesce({{ box._known }}(given, is_given => true), id);
                END IF;
            END IF;
        END IF;
        IF old_id IS NOT NULL THEN
            outcome := 'duplicate';
            id := old_id;
        ELSIF due_at > now_at THEN
            INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic)
            VALUES (due_at, id, id, expires_at, -level, topic);
        ELSE
            INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic)
            VALUES (-level, id, id, expires_at, topic);
        END IF;
    ELSE
        SELECT e.id, e.message_id, e.outcome
        INTO id, message_id, outcome
        FROM {{ box._enqueue }}(ARRAY[ROW(
            id, message_id, coalesce(created_at, now_at), due_at, expires_at, 0, level,
            topic, payload, correlation_id, group_id, dedup_key, collapse_key, headers, NULL, nullif(given IS NOT NULL, false)
        )::{{ box.message }}]) AS e;
    END IF;

    {{ queue.notify() }};
END;
$$;
