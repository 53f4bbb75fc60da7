{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.enqueue_many }}(messages jsonb)
RETURNS TABLE (ordinal bigint, id bigint, message_id uuid, outcome text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET datestyle = 'ISO, YMD'
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
    size CONSTANT integer := CASE jsonb_typeof(messages) WHEN 'array' THEN jsonb_array_length(messages) END;
    stem text;
    ids bigint[];
    message_ids uuid[];
    placed bigint[];
    is_run boolean;
    run_topic text;
    keyed {{ box.message }}[];
    -- Big batches become runs, which claims take whole or in part: long enough to be worth it, and so many of them
    -- that workers who ask at the same time each find their own.
    longest CONSTANT integer := CASE WHEN size < 250 THEN 1 ELSE least(size / 64, 32) END;
BEGIN
    IF size IS NULL THEN
        PERFORM {{ db._reject }}('messages', 'must be a JSON array');
    END IF;
    -- First the xid, then the numbers, then the clock: the low marks rest on that.
    PERFORM pg_current_xact_id();
    -- All at once, so that other producers seldom draw from between them.
    ids := ARRAY(SELECT nextval({{ box._ids | literal }}) FROM generate_series(1, size));
    now_at := {{ db._now }}();
    stem := {{ "now_at" | message_id_stem }};

    BEGIN
        WITH record AS MATERIALIZED (
            SELECT
                ids[o.place] AS id,
                coalesce(o.message_id, {{ "ids[o.place]" | drawn_message_id("stem") }}) AS message_id,
                coalesce(o.created_at, now_at) AS created_at,
                CASE WHEN o.delay_seconds > 0 THEN now_at + make_interval(secs => o.delay_seconds) ELSE o.due_at END AS due_at,
                o.expires_at,
                coalesce(o.priority, 0) AS priority,
                o.topic, o.payload, o.correlation_id, o.group_id, o.dedup_key, o.collapse_key, o.headers,
                CASE WHEN o.message_id IS NOT NULL THEN true END AS is_given,
                o.message_id IS NOT NULL OR o.group_id IS NOT NULL OR o.dedup_key IS NOT NULL OR o.collapse_key IS NOT NULL
                    AS is_keyed
            FROM ROWS FROM (
                jsonb_to_recordset(messages) AS (
                    topic text, payload text, correlation_id text, due_at timestamptz, message_id uuid, group_id text,
                    priority integer, dedup_key text, collapse_key text, expires_at timestamptz, headers jsonb,
                    created_at timestamptz, delay_seconds double precision
                )
            ) WITH ORDINALITY AS o (
                topic, payload, correlation_id, due_at, message_id, group_id, priority, dedup_key, collapse_key,
                expires_at, headers, created_at, delay_seconds, place
            )
            WHERE CASE
                WHEN o.message_id = '00000000-0000-0000-0000-000000000000'
                    THEN {{ db._reject }}('message_id', 'must not be the nil uuid')
                WHEN {{ box._valid }}(o.topic, o.payload, o.correlation_id, o.dedup_key, o.due_at, o.group_id,
                    coalesce(o.priority, 0), o.collapse_key, o.expires_at, o.headers, o.created_at, o.delay_seconds)
                    THEN true
                ELSE {{ box._explain }}(o.topic, o.payload, o.correlation_id, o.dedup_key, o.due_at, o.group_id,
                    coalesce(o.priority, 0), o.collapse_key, o.expires_at, o.headers, o.created_at, o.delay_seconds)
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
        )
        SELECT
            array_agg(r.message_id),
            bool_and(r.priority = 0 AND r.due_at IS NULL AND r.expires_at IS NULL AND NOT r.is_keyed)
                AND min(r.topic) = max(r.topic),
            min(r.topic),
            array_agg(r.id) FILTER (WHERE NOT r.is_keyed),
            array_agg(ROW(
                r.id, r.message_id, r.created_at, r.due_at, r.expires_at, 0, r.priority, r.topic, r.payload,
                r.correlation_id, r.group_id, r.dedup_key, r.collapse_key, r.headers, NULL, r.is_given
            )::{{ box.message }}) FILTER (WHERE r.is_keyed)
        INTO message_ids, is_run, run_topic, placed, keyed
        FROM record AS r;
    EXCEPTION
        WHEN data_exception THEN
            PERFORM {{ db._reject }}('messages', 'every record must be an object, with values of the right types');
    END;

    IF is_run THEN
        INSERT INTO {{ box.ready }} (lane, span, ticket, id, topic)
        SELECT 0, least(longest, p.last_id - g.id + 1), g.id, g.id, run_topic
        FROM (
            SELECT ids[1] AS first_id, ids[size] AS last_id WHERE ids[size] - ids[1] < size
            UNION ALL
            -- Another producer drew from between them: a run for each part that is of one piece.
            SELECT min(u.id), max(u.id)
            FROM unnest(ids) WITH ORDINALITY AS u (id, place)
            WHERE ids[size] - ids[1] >= size
            GROUP BY u.id - u.place
        ) AS p
        CROSS JOIN generate_series(p.first_id, p.last_id, longest) AS g (id);
    ELSIF ids[size] - ids[1] >= size THEN
        PERFORM {{ box._admit }}(placed);
    ELSE
        {{ queue.enter_lanes() }};
        INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic)
        SELECT 0 - m.priority, m.id, m.id, m.expires_at, m.topic
        FROM {{ box.message }} AS m
        WHERE m.id >= ids[1] AND m.id <= ids[size] AND (m.due_at IS NULL OR m.due_at <= now_at)
        ORDER BY m.id;
        INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic)
        SELECT m.due_at, m.id, m.id, m.expires_at, 0 - m.priority, m.topic
        FROM {{ box.message }} AS m
        WHERE m.id >= ids[1] AND m.id <= ids[size] AND m.due_at > now_at
        ORDER BY m.due_at, m.id;
    END IF;

    IF keyed IS NULL THEN
        RETURN QUERY
        SELECT u.place, u.id, u.message_id, 'created'
        FROM unnest(ids, message_ids) WITH ORDINALITY AS u (id, message_id, place);
    ELSE
        RETURN QUERY
        SELECT u.place, coalesce(e.id, u.id), coalesce(e.message_id, u.message_id), coalesce(e.outcome, 'created')
        FROM unnest(ids, message_ids) WITH ORDINALITY AS u (id, message_id, place)
        LEFT JOIN (
            SELECT k.id AS drawn, r.id, r.message_id, r.outcome
            FROM unnest(keyed) WITH ORDINALITY AS k
            INNER JOIN {{ box._enqueue }}(keyed) WITH ORDINALITY AS r (id, message_id, outcome, place)
                ON r.place = k.ordinality
        ) AS e ON e.drawn = u.id
        ORDER BY u.place;
    END IF;

    {{ queue.notify() }};
END;
$$;
