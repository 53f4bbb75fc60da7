CREATE OR REPLACE FUNCTION {{ box.enqueue_many }}(messages jsonb)
RETURNS TABLE (ordinal bigint, id bigint, message_id uuid, outcome text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Writes many messages in one statement, or none if one of them is wrong.
    -- messages: a JSON array of objects, whose keys are the arguments of enqueue; other keys are passed over
    -- returns: ordinal, id, message_id, outcome; one row a record, in their order, ordinal from 1
    -- errors: PB001
    -- locks: group, message
    -- role: producer
DECLARE
    now_at timestamptz;
    -- One draw of randomness a batch: time, version and chance from here, the last ten digits from the id.
    stem CONSTANT text := left(replace({{ db._uuid }}()::text, '-', ''), 22);
    all_ids bigint[];
    all_message_ids uuid[];
    keyed {{ box.message }}[];
BEGIN
    IF messages IS NULL OR jsonb_typeof(messages) <> 'array' THEN
        PERFORM {{ db._reject }}('messages', 'must be a JSON array');
    END IF;
    -- The xid comes before the tickets and before the clock is read: the low marks rest on that.
    PERFORM pg_current_xact_id();
    now_at := {{ db._now }}();

    BEGIN
        WITH record AS MATERIALIZED (
            SELECT
                o.id,
                coalesce(o.message_id, (stem || lpad(to_hex(o.id & 1099511627775), 10, '0'))::uuid) AS message_id,
                coalesce(o.created_at, now_at) AS created_at,
                o.due_at, o.expires_at,
                coalesce(o.priority, 0) AS priority,
                o.topic, o.payload, o.correlation_id, o.group_id, o.dedup_key, o.collapse_key, o.headers,
                num_nonnulls(o.message_id, o.group_id, o.dedup_key, o.collapse_key) > 0 AS is_keyed
            FROM (
                SELECT nextval({{ box._ids | literal }}) AS id, r.*
                FROM jsonb_to_recordset(messages) AS r (
                    topic text, payload text, correlation_id text, due_at timestamptz, message_id uuid, group_id text,
                    priority integer, dedup_key text, collapse_key text, expires_at timestamptz, headers jsonb,
                    created_at timestamptz
                )
            ) AS o
            WHERE CASE
                WHEN {{ box._valid }}(o.topic, o.payload, o.correlation_id, o.dedup_key, o.due_at, o.group_id,
                    coalesce(o.priority, 0), o.collapse_key, o.expires_at, o.headers, o.created_at)
                    THEN true
                ELSE {{ box._explain }}(o.topic, o.payload, o.correlation_id, o.dedup_key, o.due_at, o.group_id,
                    coalesce(o.priority, 0), o.collapse_key, o.expires_at, o.headers, o.created_at)
            END
        ),
        written AS (
            INSERT INTO {{ box.message }} (
                id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id, headers
            )
            SELECT
                r.id, r.message_id, r.created_at, r.due_at, r.expires_at, 0, r.priority, r.topic, r.payload,
                r.correlation_id, r.headers
            FROM record AS r
            WHERE NOT r.is_keyed
        ),
        placed AS (
            INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic)
            SELECT -r.priority, r.id, r.id, r.expires_at, r.topic
            FROM record AS r
            WHERE NOT r.is_keyed AND (r.due_at IS NULL OR r.due_at <= now_at)
        ),
        later AS (
            INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic)
            SELECT r.due_at, r.id, r.id, r.expires_at, -r.priority, r.topic
            FROM record AS r
            WHERE NOT r.is_keyed AND r.due_at > now_at
        )
        SELECT
            array_agg(r.id),
            array_agg(r.message_id),
            array_agg(ROW(
                r.id, r.message_id, r.created_at, r.due_at, r.expires_at, 0, r.priority, r.topic, r.payload,
                r.correlation_id, r.group_id, r.dedup_key, r.collapse_key, r.headers, NULL
            )::{{ box.message }}) FILTER (WHERE r.is_keyed)
        INTO all_ids, all_message_ids, keyed
        FROM record AS r;
    EXCEPTION
        WHEN data_exception THEN
            PERFORM {{ db._reject }}('messages', 'every record must be an object, with values of the right types');
    END;

    IF keyed IS NULL THEN
        RETURN QUERY
        SELECT u.place, u.id, u.message_id, 'created'
        FROM unnest(all_ids, all_message_ids) WITH ORDINALITY AS u (id, message_id, place);
    ELSE
        RETURN QUERY
        SELECT u.place, coalesce(e.id, u.id), coalesce(e.message_id, u.message_id), coalesce(e.outcome, 'created')
        FROM unnest(all_ids, all_message_ids) WITH ORDINALITY AS u (id, message_id, place)
        LEFT JOIN (
            SELECT k.id AS drawn, r.id, r.message_id, r.outcome
            FROM unnest(keyed) WITH ORDINALITY AS k
            INNER JOIN {{ box._enqueue }}(keyed) WITH ORDINALITY AS r (id, message_id, outcome, place)
                ON r.place = k.ordinality
        ) AS e ON e.drawn = u.id
        ORDER BY u.place;
    END IF;

    -- A hint to listeners, at most one in 20 milliseconds: NOTIFY makes commits queue up behind one another.
    IF coalesce(pg_sequence_last_value({{ box._notified | literal }}), 0) < extract(epoch FROM now_at) * 1000 THEN
        PERFORM setval({{ box._notified | literal }}, (extract(epoch FROM now_at) * 1000)::bigint + 20);
        PERFORM pg_notify({{ (schema ~ "." ~ box_name) | literal }}, '');
    END IF;
END;
$$;
