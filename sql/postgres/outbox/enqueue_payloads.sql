{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.enqueue_payloads }}(
    topic text,
    payloads text[],
    correlation_id text DEFAULT NULL,
    due_at timestamptz DEFAULT NULL,
    priority integer DEFAULT 0,
    expires_at timestamptz DEFAULT NULL,
    headers jsonb DEFAULT NULL
)
RETURNS TABLE (ordinal bigint, id bigint, message_id uuid)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Writes many messages that differ only in their payloads: the quickest way in.
    -- topic: 1 to 255 characters
    -- payloads: not null, and none of them null
    -- correlation_id: up to 255 characters
    -- due_at: not handed out before; null or past is now
    -- priority: from -32768 to 32767, higher first
    -- expires_at: not handed out from then on
    -- headers: a JSON object
    -- returns: ordinal, id, message_id; one row a payload, in their order, ordinal from 1
    -- errors: PB001
    -- locks: none
    -- role: producer
DECLARE
    now_at timestamptz;
    level integer := coalesce(priority, 0);
    size CONSTANT integer := cardinality(payloads);
    stem text;
    ids bigint[];
    message_ids uuid[];
    -- As in enqueue_many.
    longest CONSTANT integer := CASE WHEN size < 250 THEN 1 ELSE least(size / 64, 32) END;
BEGIN
    IF {{ box._valid }}(topic, '', correlation_id, NULL, due_at, NULL, level, NULL, expires_at, headers, NULL, NULL) IS NOT TRUE
    THEN
        PERFORM {{ box._explain }}(topic, '', correlation_id, NULL, due_at, NULL, level, NULL, expires_at, headers, NULL, NULL);
    END IF;
    IF payloads IS NULL OR array_ndims(payloads) > 1 THEN
        PERFORM {{ db._reject }}('payloads', 'must be an array of texts');
    ELSIF array_position(payloads, NULL) IS NOT NULL THEN
        PERFORM {{ db._reject }}('payloads', 'must not hold a null');
    ELSIF size = 0 THEN
        RETURN;
    END IF;
    -- First the xid, then the numbers, then the clock: the low marks rest on that.
    PERFORM pg_current_xact_id();
    -- All at once, so that other producers seldom draw from between them.
    ids := ARRAY(SELECT nextval({{ box._ids | literal }}) FROM generate_series(1, size));
    now_at := {{ db._now }}();
    {{ queue.enter_lane("level") }};
    stem := {{ "now_at" | message_id_stem }};
    message_ids := ARRAY(SELECT {{ "u.id" | drawn_message_id("stem") }} FROM unnest(ids) AS u (id));

    INSERT INTO {{ box.message }} (
        id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id, headers
    )
    SELECT
        u.id, u.message_id, now_at, $4, $6, 0, level, $1, u.payload, $3, $7
    -- In a select list arrays are unnested row by row, in FROM each is written down first.
    FROM (SELECT unnest(ids) AS id, unnest(message_ids) AS message_id, unnest(payloads) AS payload) AS u;

    IF due_at > now_at THEN
        INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic)
        SELECT $4, u.id, u.id, $6, -level, $1 FROM unnest(ids) AS u (id);
    ELSIF level <> 0 OR expires_at IS NOT NULL THEN
        INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic)
        SELECT -level, u.id, u.id, $6, $1 FROM unnest(ids) AS u (id);
    ELSE
        INSERT INTO {{ box.ready }} (lane, span, ticket, id, topic)
        SELECT 0, least(longest, p.last_id - g.id + 1), g.id, g.id, $1
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
    END IF;

    RETURN QUERY
    SELECT generate_series(1, size::bigint), unnest(ids), unnest(message_ids);

    {{ queue.notify() }};
END;
$$;
