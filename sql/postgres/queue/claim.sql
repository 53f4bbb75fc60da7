CREATE OR REPLACE FUNCTION {{ box.claim }}(
    owner_token uuid,
    lease_seconds integer,
    batch_size integer,
    topics text[] DEFAULT NULL
)
RETURNS TABLE (
    id bigint,
{% if kind == "inbox" %}
    message_id text,
    source text,
    topic text,
    payload text,
    hash bytea,
{% else %}
    message_id uuid,
    topic text,
    payload text,
    correlation_id text,
{% endif %}
    group_id text,
    priority smallint,
    headers jsonb,
    attempt integer,
{% if kind == "inbox" %}
    first_seen_at timestamptz,
    last_seen_at timestamptz,
{% else %}
    created_at timestamptz,
{% endif %}
    due_at timestamptz,
    expires_at timestamptz,
    last_error text,
    locked_until timestamptz
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Hands out up to batch_size messages under a lease, whole, in claim order.
    -- Waits for no other claim and returns no message twice while its lease is good. First brings back a few expired
    -- leases and moves what has become due, so a queue that is only claimed from needs no other care.
    -- Needs READ COMMITTED: an older snapshot cannot see which groups are held.
    -- owner_token: not the nil uuid
    -- lease_seconds: from 1 to 86400
    -- batch_size: from 1 to 10000
    -- topics: only these; null for all
{% if kind == "inbox" %}
    -- returns: id, message_id, source, topic, payload, hash, group_id, priority, headers, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, locked_until
{% else %}
    -- returns: id, message_id, topic, payload, correlation_id, group_id, priority, headers, attempt, created_at, due_at, expires_at, last_error, locked_until
{% endif %}
    -- errors: PB001, PB003
    -- locks: group, lease, message
    -- role: worker
DECLARE
    now_at timestamptz := {{ db._now }}();
    until_at timestamptz;
    low bigint;
    longest integer;
    head_ticket bigint;
    from_due timestamptz;
    from_lease timestamptz;
    any_due boolean;
    any_expired boolean;
    any_urgent boolean;
    paused text[];
    allowed text[];
    reach integer;
    from_lane integer;
    from_ticket bigint;
    to_lane integer;
    is_moved boolean;
    room integer;
    row_limit integer;
    got_rows integer;
    got_longest integer;
    got integer;
    got_ids bigint[];
    got_spans integer[];
    got_topics text[];
    got_groups text[];
    got_first bigint;
    got_first_lane integer;
    got_last_lane integer;
    got_last_ticket bigint;
    is_run boolean;
    any_grouped boolean;
    any_overdue boolean;
    overdue bigint[];
    -- What is found is a run of one topic as long as it can be one, and otherwise in the arrays.
    run_first bigint;
    run_length integer := 0;
    run_topic text;
    found_ids bigint[] := '{}';
    found_topics text[] := '{}';
    found_groups text[] := '{}';
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000'
        AND lease_seconds BETWEEN 1 AND 86400 AND batch_size BETWEEN 1 AND 10000) IS NOT TRUE
    THEN
        PERFORM {{ db._check_owner }}(owner_token, lease_seconds, batch_size);
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = 'PB003', MESSAGE = 'claim: needs a READ COMMITTED transaction';
    END IF;

    IF topics IS NOT NULL THEN
        allowed := ARRAY(SELECT DISTINCT u.topic FROM unnest(topics) AS u (topic));
    END IF;

    -- Now and then somebody moves the low marks up, before anything is written, and very seldom looks whether they are
    -- right at all, for that walks over all dead rows, of which a held snapshot leaves many; more often where nothing is
    -- found.
    IF random() < 0.03 THEN
        PERFORM {{ box._tick }}(random() < 0.0005);
    END IF;

    -- Read without a query, and before the snapshot of the next one; null is a mark that never moved.
    low := coalesce(pg_sequence_last_value({{ box._low_ticket | literal }}), 0);
    from_due := to_timestamp(coalesce(pg_sequence_last_value({{ box._low_due | literal }}), 0) / 1000000.0);
    from_lease := to_timestamp(coalesce(pg_sequence_last_value({{ box._low_lease | literal }}), 0) / 1000000.0);
    SELECT
        EXISTS (SELECT FROM {{ box.scheduled }} AS s WHERE s.due_at >= from_due AND s.due_at <= now_at),
        EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.locked_until >= from_lease AND l.locked_until < now_at),
        EXISTS (SELECT FROM {{ box.ready }} AS r WHERE r.lane < 0),
        ARRAY(SELECT p.topic FROM {{ box.paused }} AS p),
        head.ticket, head.longest
    INTO any_due, any_expired, any_urgent, paused, head_ticket, longest
    FROM (
        SELECT min(h.ticket) AS ticket, max(h.span) AS longest
        FROM (
            SELECT r.ticket, r.span
            FROM {{ box.ready }} AS r
            WHERE r.lane = 0 AND r.ticket >= low
            ORDER BY r.lane, r.ticket
            LIMIT 3
        ) AS h
    ) AS head;

    IF any_expired THEN
        PERFORM {{ box._reap }}(100);
    END IF;
    IF any_due THEN
        PERFORM {{ box._promote }}(greatest(batch_size, 100));
        any_urgent := true;
    END IF;
    IF paused <> '{}' THEN
        IF paused @> '{""}' THEN
            RETURN;
        END IF;
        allowed := {{ box._unpaused }}(allowed, paused);
    END IF;
    IF allowed IS NULL THEN
        -- The dead rows before the head were walked over once; what was committed there since is the next claim's.
        low := coalesce(head_ticket, low);
    ELSE
        SELECT max(h.span) INTO longest
        FROM unnest(allowed) AS t (topic)
        CROSS JOIN LATERAL (
            SELECT r.span
            FROM {{ box.ready }} AS r
            WHERE r.topic = t.topic AND r.lane = 0 AND r.ticket >= low
            ORDER BY r.topic, r.lane, r.ticket
            LIMIT 1
        ) AS h;
    END IF;

    -- 1: what is above the log, 2: the log, from its low mark, 3: what is below it.
    FOR step IN 1..3 LOOP
        CONTINUE WHEN step = 1 AND NOT any_urgent;
        to_lane := CASE step WHEN 1 THEN -1 WHEN 2 THEN 0 ELSE 32768 END;
        is_moved := false;
        reach := 2 * (batch_size - run_length - cardinality(found_ids)) + 20;
        LOOP
            room := batch_size - run_length - cardinality(found_ids);
            EXIT WHEN room <= 0;
            IF NOT is_moved THEN
                from_lane := CASE step WHEN 1 THEN -32768 WHEN 2 THEN 0 ELSE 1 END;
                from_ticket := CASE step WHEN 2 THEN low ELSE 0 END;
            END IF;
            -- Only what will be taken is to be locked: as many rows as are needed if all are as long as the longest
            -- seen. Only the last one may have more messages than there is room for.
            row_limit := CASE WHEN step = 2 AND longest > 1 THEN 1 + (room - 1) / longest ELSE room END;
            IF allowed IS NULL THEN
                WITH gone AS (
                    DELETE FROM {{ box.ready }} AS r
                    WHERE r.ctid = ANY (ARRAY(
                        SELECT n.place
                        FROM (
                            SELECT c.place, sum(c.span) OVER (ORDER BY c.lane, c.ticket ROWS UNBOUNDED PRECEDING) - c.span AS before
                            FROM (
                                SELECT w.ctid AS place, w.lane, w.ticket, w.span
                                FROM {{ box.ready }} AS w
                                WHERE (w.lane, w.ticket) >= (from_lane, from_ticket)
                                    AND w.lane <= to_lane
                                ORDER BY w.lane, w.ticket
                                LIMIT row_limit
                                FOR UPDATE SKIP LOCKED
                            ) AS c
                        ) AS n
                        WHERE n.before < room
                    ))
                    RETURNING r.lane, r.ticket, r.id, r.span, r.topic, r.group_id, r.expires_at <= now_at AS is_overdue
                )
                SELECT
                    count(*), sum(g.span), max(g.span), min(g.id),
                    bool_and(g.ticket = g.id) AND max(g.id + g.span) - min(g.id) = sum(g.span) AND min(g.topic) = max(g.topic),
                    array_agg(g.id), array_agg(g.span), array_agg(g.topic), array_agg(g.group_id),
                    bool_or(g.group_id IS NOT NULL), bool_or(g.is_overdue),
                    array_agg(g.id) FILTER (WHERE g.is_overdue), min(g.lane), max(g.lane), max(g.ticket)
                INTO
                    got_rows, got, got_longest, got_first, is_run, got_ids, got_spans, got_topics, got_groups,
                    any_grouped, any_overdue, overdue, got_first_lane, got_last_lane, got_last_ticket
                FROM (SELECT gone.* FROM gone ORDER BY gone.lane, gone.ticket) AS g;
            ELSE
                -- Each topic's own order, merged; every candidate is locked only when its turn comes.
                WITH gone AS (
                    DELETE FROM {{ box.ready }} AS r
                    WHERE r.ctid = ANY (ARRAY(
                        SELECT n.place
                        FROM (
                            SELECT c.place, sum(c.span) OVER (ORDER BY c.lane, c.ticket ROWS UNBOUNDED PRECEDING) - c.span AS before
                            FROM (
                                SELECT p.place, p.span, c.lane, c.ticket
                                FROM (
                                    SELECT n.lane, n.ticket
                                    FROM unnest(allowed) AS t (topic)
                                    CROSS JOIN LATERAL (
                                        SELECT c.lane, c.ticket
                                        FROM {{ box.ready }} AS c
                                        WHERE c.topic = t.topic
                                            AND (c.lane, c.ticket) >= (from_lane, from_ticket)
                                            AND c.lane <= to_lane
                                        ORDER BY c.topic, c.lane, c.ticket
                                        LIMIT reach
                                    ) AS n
                                    ORDER BY n.lane, n.ticket
                                ) AS c
                                CROSS JOIN LATERAL (
                                    SELECT x.ctid AS place, x.span
                                    FROM {{ box.ready }} AS x
                                    WHERE x.lane = c.lane AND x.ticket = c.ticket
                                    FOR UPDATE SKIP LOCKED
                                ) AS p
                                LIMIT row_limit
                            ) AS c
                        ) AS n
                        WHERE n.before < room
                    ))
                    RETURNING r.lane, r.ticket, r.id, r.span, r.topic, r.group_id, r.expires_at <= now_at AS is_overdue
                )
                SELECT
                    count(*), sum(g.span), max(g.span), min(g.id),
                    bool_and(g.ticket = g.id) AND max(g.id + g.span) - min(g.id) = sum(g.span) AND min(g.topic) = max(g.topic),
                    array_agg(g.id), array_agg(g.span), array_agg(g.topic), array_agg(g.group_id),
                    bool_or(g.group_id IS NOT NULL), bool_or(g.is_overdue),
                    array_agg(g.id) FILTER (WHERE g.is_overdue), min(g.lane), max(g.lane), max(g.ticket)
                INTO
                    got_rows, got, got_longest, got_first, is_run, got_ids, got_spans, got_topics, got_groups,
                    any_grouped, any_overdue, overdue, got_first_lane, got_last_lane, got_last_ticket
                FROM (SELECT gone.* FROM gone ORDER BY gone.lane, gone.ticket) AS g;
            END IF;

            IF got > room THEN
                -- What there is no room for stays, as a run under the number of its own first message.
                INSERT INTO {{ box.ready }} (lane, span, ticket, id, topic)
                SELECT 0, got - room, s.id, s.id, got_topics[got_rows]
                FROM (SELECT got_ids[got_rows] + got_spans[got_rows] - (got - room) AS id) AS s;
                got_spans[got_rows] := got_spans[got_rows] - (got - room);
                got := room;
            END IF;
            IF step = 2 THEN
                longest := got_longest;
            END IF;
            IF step = 2 AND is_run AND any_grouped IS FALSE AND any_overdue IS NOT TRUE AND found_ids = '{}'
                AND (run_length = 0 OR (got_first = run_first + run_length AND got_topics[1] = run_topic))
            THEN
                run_first := coalesce(run_first, got_first);
                run_length := run_length + got;
                run_topic := got_topics[1];
            ELSIF got > 0 THEN
                IF run_length > 0 THEN
                    found_ids := ARRAY(SELECT g.id FROM generate_series(run_first, run_first + run_length - 1) AS g (id));
                    found_topics := array_fill(run_topic, ARRAY[run_length]);
                    found_groups := array_fill(NULL::text, ARRAY[run_length]);
                    run_length := 0;
                END IF;
                IF got > got_rows THEN
                    SELECT array_agg(e.id), array_agg(e.topic), array_agg(e.group_id)
                    INTO got_ids, got_topics, got_groups
                    FROM (
                        SELECT coalesce(g.id, u.id) AS id, u.topic, u.group_id
                        FROM unnest(got_ids, got_spans, got_topics, got_groups) WITH ORDINALITY
                            AS u (id, span, topic, group_id, place)
                        LEFT JOIN LATERAL generate_series(u.id, u.id + u.span - 1) AS g (id) ON true
                        ORDER BY u.place, g.id
                    ) AS e;
                END IF;
                IF any_overdue THEN
                    PERFORM {{ box._bury }}(overdue, NULL, true);
                END IF;
                IF any_grouped OR any_overdue THEN
                    -- A group's ticket becomes the messages at its head, as many as leave each other ticket a place.
                    SELECT
                        found_ids || array_agg(e.id ORDER BY e.place, e.id),
                        found_topics || array_agg(e.topic ORDER BY e.place, e.id),
                        found_groups || array_agg(e.group_id ORDER BY e.place, e.id)
                    INTO found_ids, found_topics, found_groups
                    FROM (
                        SELECT u.place, u.id, u.topic, NULL AS group_id
                        FROM unnest(got_ids, got_topics) WITH ORDINALITY AS u (id, topic, place)
                        WHERE u.id IS NOT NULL AND u.id <> ALL (coalesce(overdue, '{}'))
                        UNION ALL
                        SELECT min(u.place), c.id, c.topic, c.group_id
                        FROM {{ box._claim_groups }}(
                            array_remove(got_groups, NULL),
                            (
                                SELECT 1 + (room - got) / greatest(1, count(DISTINCT d.group_id))
                                FROM unnest(got_groups) AS d (group_id)
                            )::integer,
                            allowed
                        ) AS c
                        INNER JOIN unnest(got_groups) WITH ORDINALITY AS u (group_id, place) USING (group_id)
                        GROUP BY c.id, c.topic, c.group_id
                    ) AS e;
                ELSE
                    found_ids := found_ids || got_ids;
                    found_topics := found_topics || got_topics;
                    found_groups := found_groups || got_groups;
                END IF;
            END IF;
            IF got >= room OR got_rows >= row_limit THEN
                -- What was just deleted would be walked over by the next look, which comes where much of it could not
                -- be handed out: tickets of groups that have ended, messages that have expired.
                is_moved := true;
                from_ticket := CASE WHEN got_first_lane = got_last_lane THEN got_last_ticket ELSE 0 END;
                from_lane := got_last_lane;
                CONTINUE;
            END IF;
            EXIT WHEN allowed IS NULL;
            IF is_moved THEN
                -- Where others had more of one topic locked than was within reach, another topic's rows came first.
                is_moved := false;
                CONTINUE;
            END IF;
            EXIT WHEN NOT EXISTS (
                -- Somebody may have had everything within reach locked while more lies beyond it.
                SELECT FROM unnest(allowed) AS t (topic)
                CROSS JOIN LATERAL (
                    SELECT FROM {{ box.ready }} AS c
                    WHERE c.topic = t.topic
                        AND (c.lane, c.ticket) >= (from_lane, from_ticket)
                        AND c.lane <= to_lane
                    ORDER BY c.topic, c.lane, c.ticket
                    OFFSET reach - got_rows
                    LIMIT 1
                ) AS beyond
            );
            reach := 4 * reach;
        END LOOP;
    END LOOP;

    IF run_length > 0 OR found_ids <> '{}' THEN
        -- The clock is read after the first write: a low mark reckons with leases that begin after their xid.
        until_at := {{ db._now }}() + make_interval(secs => lease_seconds);
    END IF;
    IF run_length > 0 THEN
        RETURN QUERY
        WITH leased AS (
            INSERT INTO {{ box.lease }} (id, owner_token, locked_until, topic)
            SELECT g.id, $1, until_at, run_topic
            FROM generate_series(run_first, run_first + run_length - 1) AS g (id)
        )
        SELECT
{% if kind == "inbox" %}
            m.id, m.message_id, m.source, m.topic, m.payload, m.hash, m.group_id, m.priority, m.headers, m.attempt,
            m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error, until_at
{% else %}
            m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.headers, m.attempt,
            m.created_at, m.due_at, m.expires_at, m.last_error, until_at
{% endif %}
        FROM {{ box.message }} AS m
        WHERE m.id >= run_first AND m.id < run_first + run_length
        ORDER BY m.id;
    ELSIF found_ids <> '{}' THEN
        RETURN QUERY
        WITH leased AS (
            INSERT INTO {{ box.lease }} (id, owner_token, locked_until, topic, group_id)
            SELECT u.id, $1, until_at, u.topic, u.group_id
            FROM unnest(found_ids, found_topics, found_groups) AS u (id, topic, group_id)
        )
        SELECT
{% if kind == "inbox" %}
            m.id, m.message_id, m.source, m.topic, m.payload, m.hash, m.group_id, m.priority, m.headers, m.attempt,
            m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error, until_at
{% else %}
            m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.headers, m.attempt,
            m.created_at, m.due_at, m.expires_at, m.last_error, until_at
{% endif %}
        FROM unnest(found_ids) WITH ORDINALITY AS u (id, place)
        CROSS JOIN LATERAL (
            -- OFFSET 0 keeps it a lookup, whatever the planner knew of the table when it made the plan.
            SELECT w.* FROM {{ box.message }} AS w WHERE w.id = u.id OFFSET 0
        ) AS m
        ORDER BY u.place;
    ELSE
        IF random() < 0.0075 THEN
            PERFORM {{ box._tick }}(true);
        END IF;
        -- Whoever finds nothing is about to wait, so the next enqueue notifies at once, however short ago the last did.
        IF pg_sequence_last_value({{ box._notified | literal }}) BETWEEN 1 AND 8000000000000000000 THEN
            PERFORM setval({{ box._notified | literal }}, 0);
        END IF;
    END IF;
END;
$$;
