{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.enqueue_many }}(messages jsonb)
RETURNS TABLE (ordinal bigint, id bigint, outcome text, hash_mismatch boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET datestyle = 'ISO, YMD'
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Takes many messages in, or none if one of them is wrong.
    -- messages: a JSON array of objects, whose keys are the arguments of enqueue (hash as hex); others are passed over
    -- returns: ordinal, id, outcome, hash_mismatch; one row a record, in their order, ordinal from 1
    -- errors: PB001
    -- locks: group, message
    -- role: producer
DECLARE
    now_at timestamptz;
    rows {{ box.message }}[];
BEGIN
    IF messages IS NULL OR jsonb_typeof(messages) <> 'array' THEN
        PERFORM {{ db._reject }}('messages', 'must be a JSON array');
    END IF;
    -- First the xid, then a look at the numbers, then the clock: the low marks rest on that.
    PERFORM pg_current_xact_id();
    {{ queue.touch() }};
    now_at := {{ db._now }}();

    BEGIN
        SELECT array_agg(ROW(
            nextval({{ box._ids | literal }}), coalesce(o.received_at, now_at), now_at,
            CASE WHEN o.delay_seconds > 0 THEN now_at + make_interval(secs => o.delay_seconds) ELSE o.due_at END,
            o.expires_at, 0,
            coalesce(o.priority, 0), o.source, o.message_id, o.topic, o.payload, decode(o.hash, 'hex'), o.group_id,
            o.collapse_key, o.headers, NULL
        )::{{ box.message }})
        INTO rows
        FROM jsonb_to_recordset(messages) AS o (
            topic text, source text, message_id text, payload text, hash text, due_at timestamptz, group_id text,
            priority integer, collapse_key text, expires_at timestamptz, headers jsonb, received_at timestamptz,
            delay_seconds double precision
        )
        WHERE CASE
            WHEN {{ box._valid }}(o.topic, o.payload, o.source, o.message_id, o.due_at, o.group_id,
                coalesce(o.priority, 0), o.collapse_key, o.expires_at, o.headers, o.received_at, o.delay_seconds)
                THEN true
            ELSE {{ box._explain }}(o.topic, o.payload, o.source, o.message_id, o.due_at, o.group_id,
                coalesce(o.priority, 0), o.collapse_key, o.expires_at, o.headers, o.received_at, o.delay_seconds)
        END;
    EXCEPTION
        WHEN sequence_generator_limit_exceeded THEN
            RAISE;  -- of the same class as what follows: the place has no more ids
        WHEN data_exception THEN
            PERFORM {{ db._reject }}('messages', 'every record must be an object, with values of the right types');
    END;

    RETURN QUERY
    SELECT e.place, e.id, e.outcome, e.hash_mismatch
    FROM {{ box._enqueue }}(coalesce(rows, '{}')) WITH ORDINALITY AS e (id, outcome, hash_mismatch, place)
    ORDER BY e.place;

    {{ queue.notify() }};
END;
$$;
