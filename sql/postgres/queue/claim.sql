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
    from_due timestamptz;
    from_lease timestamptz;
    any_due boolean;
    any_expired boolean;
    any_urgent boolean;
    paused text[];
    allowed text[];
    reach integer;
    from_lane integer;
    to_lane integer;
    room integer;
    got integer;
    got_ids bigint[];
    got_topics text[];
    got_groups text[];
    any_grouped boolean;
    any_overdue boolean;
    overdue bigint[];
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

    -- Now and then somebody moves the low marks up, before anything is written, and seldom looks whether they are
    -- right at all; more often where nothing is found.
    IF random() < 0.03 THEN
        PERFORM {{ box._tick }}(random() < 0.02);
    END IF;

    -- Read without a query, and before the snapshot of the next one; null is a mark that never moved.
    low := coalesce(pg_sequence_last_value({{ box._low_ticket | literal }}), 0);
    from_due := to_timestamp(coalesce(pg_sequence_last_value({{ box._low_due | literal }}), 0) / 1000000.0);
    from_lease := to_timestamp(coalesce(pg_sequence_last_value({{ box._low_lease | literal }}), 0) / 1000000.0);
    SELECT
        EXISTS (SELECT FROM {{ box.scheduled }} AS s WHERE s.due_at >= from_due AND s.due_at <= now_at),
        EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.locked_until >= from_lease AND l.locked_until < now_at),
        EXISTS (SELECT FROM {{ box.ready }} AS r WHERE r.lane < 0),
        ARRAY(SELECT p.topic FROM {{ box.paused }} AS p)
    INTO any_due, any_expired, any_urgent, paused;

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

    -- 1: what is above the log, 2: the log, from its low mark, 3: what is below it.
    FOR step IN 1..3 LOOP
        CONTINUE WHEN step = 1 AND NOT any_urgent;
        from_lane := CASE step WHEN 1 THEN -32768 WHEN 2 THEN 0 ELSE 1 END;
        to_lane := CASE step WHEN 1 THEN -1 WHEN 2 THEN 0 ELSE 32768 END;
        reach := 0;
        LOOP
            room := batch_size - cardinality(found_ids);
            EXIT WHEN room <= 0;
            IF allowed IS NULL THEN
                WITH gone AS (
                    DELETE FROM {{ box.ready }} AS r
                    WHERE r.ctid = ANY (ARRAY(
                        SELECT c.ctid
                        FROM {{ box.ready }} AS c
                        WHERE (c.lane, c.ticket) >= (from_lane, CASE step WHEN 2 THEN low ELSE 0 END)
                            AND c.lane <= to_lane
                        ORDER BY c.lane, c.ticket
                        LIMIT room
                        FOR UPDATE SKIP LOCKED
                    ))
                    RETURNING r.lane, r.ticket, r.id, r.topic, r.group_id, r.expires_at <= now_at AS is_overdue
                )
                SELECT
                    count(*), array_agg(g.id), array_agg(g.topic), array_agg(g.group_id),
                    bool_or(g.group_id IS NOT NULL), bool_or(g.is_overdue),
                    array_agg(g.id) FILTER (WHERE g.is_overdue)
                INTO got, got_ids, got_topics, got_groups, any_grouped, any_overdue, overdue
                FROM (SELECT gone.* FROM gone ORDER BY gone.lane, gone.ticket) AS g;
            ELSE
                -- Each topic's own order, merged; every candidate is locked only when its turn comes.
                reach := CASE reach WHEN 0 THEN 2 * room + 20 ELSE 4 * reach END;
                WITH gone AS (
                    DELETE FROM {{ box.ready }} AS r
                    WHERE r.ctid = ANY (ARRAY(
                        SELECT p.place
                        FROM (
                            SELECT n.lane, n.ticket
                            FROM unnest(allowed) AS t (topic)
                            CROSS JOIN LATERAL (
                                SELECT c.lane, c.ticket
                                FROM {{ box.ready }} AS c
                                WHERE c.topic = t.topic
                                    AND (c.lane, c.ticket) >= (from_lane, CASE step WHEN 2 THEN low ELSE 0 END)
                                    AND c.lane <= to_lane
                                ORDER BY c.topic, c.lane, c.ticket
                                LIMIT reach
                            ) AS n
                            ORDER BY n.lane, n.ticket
                        ) AS c
                        CROSS JOIN LATERAL (
                            SELECT x.ctid AS place
                            FROM {{ box.ready }} AS x
                            WHERE x.lane = c.lane AND x.ticket = c.ticket
                            FOR UPDATE SKIP LOCKED
                        ) AS p
                        LIMIT room
                    ))
                    RETURNING r.lane, r.ticket, r.id, r.topic, r.group_id, r.expires_at <= now_at AS is_overdue
                )
                SELECT
                    count(*), array_agg(g.id), array_agg(g.topic), array_agg(g.group_id),
                    bool_or(g.group_id IS NOT NULL), bool_or(g.is_overdue),
                    array_agg(g.id) FILTER (WHERE g.is_overdue)
                INTO got, got_ids, got_topics, got_groups, any_grouped, any_overdue, overdue
                FROM (SELECT gone.* FROM gone ORDER BY gone.lane, gone.ticket) AS g;
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
            ELSIF got > 0 THEN
                found_ids := found_ids || got_ids;
                found_topics := found_topics || got_topics;
                found_groups := found_groups || got_groups;
            END IF;
            CONTINUE WHEN got >= room;
            EXIT WHEN allowed IS NULL;
            EXIT WHEN NOT EXISTS (
                -- Somebody may have had everything within reach locked while more lies beyond it.
                SELECT FROM unnest(allowed) AS t (topic)
                CROSS JOIN LATERAL (
                    SELECT FROM {{ box.ready }} AS c
                    WHERE c.topic = t.topic
                        AND (c.lane, c.ticket) >= (from_lane, CASE step WHEN 2 THEN low ELSE 0 END)
                        AND c.lane <= to_lane
                    ORDER BY c.topic, c.lane, c.ticket
                    OFFSET reach - cardinality(found_ids)
                    LIMIT 1
                ) AS beyond
            );
        END LOOP;
    END LOOP;

    IF found_ids <> '{}' THEN
        -- The clock is read after the first write: a low mark reckons with leases that begin after their xid.
        until_at := {{ db._now }}() + make_interval(secs => lease_seconds);
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
