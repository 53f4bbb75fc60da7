{% import "macros/queue.sql" as queue with context %}
{# The records as rows o; the first that breaks a rule is an error. #}
{% macro records() %}
FROM (
                SELECT
                    e.id, e.drawn_id,
                    jsonb_typeof(e.record) AS type,
                    e.record ->> 'topic' AS topic,
                    e.record ->> 'payload' AS payload,
                    e.record ->> 'correlation_id' AS correlation_id,
                    (e.record ->> 'due_at')::timestamptz AS due_at,
                    (e.record ->> 'message_id')::uuid AS message_id,
                    e.record ->> 'group_id' AS group_id,
                    coalesce((e.record ->> 'priority')::integer, 0) AS priority,
                    e.record ->> 'dedup_key' AS dedup_key,
                    e.record ->> 'collapse_key' AS collapse_key,
                    (e.record ->> 'expires_at')::timestamptz AS expires_at,
                    nullif(e.record -> 'headers', 'null') AS headers,
                    (e.record ->> 'created_at')::timestamptz AS created_at,
                    (e.record ->> 'delay_seconds')::double precision AS delay_seconds
                -- One record after the other; jsonb_to_recordset writes all of them down first, and takes twice as long.
                FROM (
                    SELECT unnest(ids) AS id, unnest(message_ids) AS drawn_id, jsonb_array_elements(messages) AS record
                ) AS e
                OFFSET 0
            ) AS o
            WHERE CASE
                WHEN o.type <> 'object'
                    THEN {{ db._reject }}('messages', 'every record must be an object, with values of the right types')
                WHEN o.message_id = '00000000-0000-0000-0000-000000000000'
                    THEN {{ db._reject }}('message_id', 'must not be the nil uuid')
                WHEN {{ box._valid }}(o.topic, o.payload, o.correlation_id, o.dedup_key, o.due_at, o.group_id, o.priority,
                    o.collapse_key, o.expires_at, o.headers, o.created_at, o.delay_seconds)
                    THEN true
                ELSE {{ box._explain }}(o.topic, o.payload, o.correlation_id, o.dedup_key, o.due_at, o.group_id, o.priority,
                    o.collapse_key, o.expires_at, o.headers, o.created_at, o.delay_seconds)
            END
{%- endmacro %}
{% macro due_at() %}
CASE WHEN o.delay_seconds > 0 THEN now_at + make_interval(secs => o.delay_seconds) ELSE o.due_at END
{%- endmacro %}
{# Whether others may have to do with it, which _enqueue sees to. #}
{% macro is_keyed() %}
(o.message_id IS NOT NULL OR o.group_id IS NOT NULL OR o.dedup_key IS NOT NULL OR o.collapse_key IS NOT NULL)
{%- endmacro %}
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
    any_keyed boolean;
    is_run boolean;
    first_topic CONSTANT text := messages -> 0 ->> 'topic';
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
    message_ids := ARRAY(SELECT {{ "u.id" | drawn_message_id("stem") }} FROM unnest(ids) AS u (id));

    BEGIN
        SELECT
            bool_or(e.is_keyed),
            bool_and(
                NOT e.is_keyed AND e.record ->> 'topic' = first_topic AND coalesce(e.record ->> 'priority', '0') = '0'
                AND e.record ->> 'due_at' IS NULL AND e.record ->> 'expires_at' IS NULL
                AND coalesce(e.record ->> 'delay_seconds', '0') = '0'
            )
        INTO any_keyed, is_run
        FROM (
            SELECT
                u.record,
                u.record ->> 'message_id' IS NOT NULL OR u.record ->> 'group_id' IS NOT NULL
                    OR u.record ->> 'dedup_key' IS NOT NULL OR u.record ->> 'collapse_key' IS NOT NULL AS is_keyed
            FROM (SELECT jsonb_array_elements(messages) AS record) AS u
        ) AS e;
        IF any_keyed THEN
            SELECT array_agg(ROW(
                o.id, coalesce(o.message_id, o.drawn_id), coalesce(o.created_at, now_at), {{ due_at() }}, o.expires_at, 0, o.priority,
                o.topic, o.payload, o.correlation_id, o.group_id, o.dedup_key, o.collapse_key, o.headers, NULL,
                CASE WHEN o.message_id IS NOT NULL THEN true END
            )::{{ box.message }})
            INTO keyed
            {{ records() }} AND {{ is_keyed() }};
        END IF;
        INSERT INTO {{ box.message }} (
            id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id, headers
        )
        SELECT
            o.id, o.drawn_id, coalesce(o.created_at, now_at), {{ due_at() }}, o.expires_at, 0, o.priority, o.topic, o.payload,
            o.correlation_id, o.headers
        {{ records() }} AND NOT {{ is_keyed() }};
    EXCEPTION
        WHEN data_exception THEN
            PERFORM {{ db._reject }}('messages', 'every record must be an object, with values of the right types');
    END;

    IF is_run THEN
        INSERT INTO {{ box.ready }} (lane, span, ticket, id, topic)
        SELECT 0, least(longest, p.last_id - g.id + 1), g.id, g.id, first_topic
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
        -- Those with keys are written below, and admitted there.
        PERFORM {{ box._admit }}(ids);
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
        SELECT generate_series(1, size::bigint), unnest(ids), unnest(message_ids), 'created';
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
