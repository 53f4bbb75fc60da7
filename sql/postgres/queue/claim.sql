{% import "macros/queue.sql" as queue with context %}
{% import "macros/claim.sql" as parts with context %}
CREATE OR REPLACE FUNCTION {{ box.claim }}(
    owner_token uuid,
    lease_seconds integer,
    batch_size integer,
    topics text[] DEFAULT NULL
)
RETURNS TABLE (
{{ parts.result() }}
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
    -- It ends, because a lane is read upwards only, from its low mark to the last number that was drawn when the claim
    -- began: what comes back to the queue meanwhile has a higher one. And it ends soon, because it takes rows no more than
    -- a hundred times and looks for expired messages no more than eight times, and then answers with what it has.
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
    -- Where it reads: the lanes in their order, in each from a mark to the last number there is.
    lanes integer[] := '{0}';
    at_lane integer;
    low bigint;
    low_ticket bigint;
    last_ticket bigint;
    at_ticket bigint;
    next_ticket bigint;
    takes_left integer := 100;
    sweeps_left integer := 8;
    -- What it may hand out: no paused topics, and only those asked for.
    any_paused boolean := false;
    paused text[] := '{}';
    paused_bits bigint;
    allowed text[];
    -- What this session remembers of its topics: which they were, the low mark then, and where their first message stood.
    memory_name text;
    may_remember boolean := false;
    memory bigint[];
    topics_hash bigint;
    settled bigint;
    first_ticket bigint;
    -- What wants care first.
    from_due timestamptz;
    looked timestamptz;
    any_due boolean;
    any_expired boolean := false;
    -- One take.
    room integer;
    row_limit integer;
    reach integer;
    longest integer;
    head_ticket bigint;
    got_rows integer;
    got integer;
    got_longest integer;
    got_first bigint;
    is_run boolean;
    got_ids bigint[];
    got_spans integer[];
    got_topics text[];
    got_groups text[];
    any_grouped boolean;
    overdue bigint[];
    got_last bigint;
    tried_to bigint;
    -- What all takes together have found: as long as it can be one, a single run of one topic, which is read as one range.
    found integer := 0;
    run_first bigint;
    run_length integer := 0;
    run_topic text;
    found_ids bigint[] := '{}';
    found_spans integer[] := '{}';
    found_topics text[] := '{}';
    found_groups text[] := '{}';
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000'
        AND lease_seconds BETWEEN 1 AND 86400 AND batch_size BETWEEN 1 AND 10000) IS NOT TRUE
    THEN
        PERFORM {{ db._check_owner }}(owner_token, lease_seconds, batch_size);
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = 'PB003', MESSAGE = 'claim: needs a READ COMMITTED transaction; claim outside of yours, or set its isolation level';
    END IF;
    IF topics IS NOT NULL THEN
        allowed := ARRAY(SELECT DISTINCT u.topic FROM unnest(topics) AS u (topic) ORDER BY 1);
        memory_name := {{ queue.own_setting("topics") }};
        -- What its transaction has taken before it does not see, though that may come back: if it is prepared and then
        -- rolled back, when this session keeps its memory. So it remembers first of all, or right behind a settlement.
        may_remember := coalesce(pg_current_xact_id_if_assigned()::text, '')
            = coalesce(current_setting({{ queue.own_setting("settled") }}, true), '');
    END IF;

    {{ queue.arrive() }};
    -- Now and then somebody moves the low marks up and looks whether they are right; at once if the clock was set back.
    looked := {{ queue.time_mark(box._low_lease) }};
    -- Behind writes of the same transaction a tick costs more, so there are fewer.
    IF (random() < 0.03 AND (pg_current_xact_id_if_assigned() IS NULL OR random() < 0.6)) OR looked > now_at THEN
        PERFORM {{ box._tick }}();
        PERFORM {{ box._patrol }}(8);
        looked := {{ queue.time_mark(box._low_lease) }};
    END IF;

    -- Look: the marks are read before the snapshot of the query.
    settled := {{ queue.mark(box._settled) }};
    low_ticket := {{ queue.mark(box._low_ticket) }};
    low := low_ticket;
    from_due := {{ queue.time_mark(box._low_due) }};
    SELECT
        EXISTS (SELECT FROM {{ box.scheduled }} AS s WHERE s.due_at >= from_due AND s.due_at <= now_at),
        (SELECT q.last_value FROM {{ box._ids }} AS q),
        head.ticket, head.longest
    INTO any_due, last_ticket, head_ticket, longest
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

    -- Care: what it brings back is there for this claim too.
    IF looked NOT BETWEEN now_at - interval '0.2 seconds' AND now_at THEN
        any_expired := {{ box._reap }}(100) > 0;
    END IF;
    IF any_due THEN
        PERFORM {{ box._promote }}(greatest(batch_size, 100));
    END IF;
    IF any_due OR any_expired THEN
        SELECT q.last_value INTO last_ticket FROM {{ box._ids }} AS q;
    END IF;
    IF {{ queue.mark(box._special) }} > 0 THEN
        -- Most boxes have never had a priority or a pause.
        lanes := ARRAY(SELECT n.lane FROM {{ box.lane }} AS n UNION SELECT 0 ORDER BY 1);
        paused := ARRAY(SELECT p.topic FROM {{ box.paused }} AS p ORDER BY p.topic);
        any_paused := paused <> '{}';
    END IF;

    -- Where to read. The dead rows before the head were walked over once; what was committed there since is the next
    -- claim's.
    low := coalesce(head_ticket, low);
    IF any_paused THEN
        IF paused @> '{""}' THEN
            RETURN;
        END IF;
        IF allowed IS NULL THEN
            paused_bits := {{ queue.paused_bits("paused") }};
            low := greatest(low, {{ queue.low_open("paused_bits") }});
            SELECT max(h.span) INTO longest
            FROM (
                SELECT r.span
                FROM {{ box.ready }} AS r
                WHERE r.lane = 0 AND r.ticket >= low AND r.topic <> ALL (paused)
                ORDER BY r.lane, r.ticket
                LIMIT 3
            ) AS h;
        ELSE
            allowed := ARRAY(SELECT u.topic FROM unnest(allowed) AS u (topic) WHERE u.topic <> ALL (paused));
        END IF;
    END IF;
    IF memory_name IS NOT NULL THEN
        -- Messages of other topics hold the low mark back, however far these have come.
        topics_hash := hash_array_extended(allowed, 0);
        memory := string_to_array(nullif(current_setting(memory_name, true), ''), ' ')::bigint[];
        IF memory[1] = topics_hash AND memory[2] <= low_ticket THEN
            low := greatest(low, memory[3]);
        END IF;
    END IF;
    IF allowed IS NOT NULL THEN
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

    <<read>>
    FOREACH at_lane IN ARRAY lanes LOOP
        at_ticket := CASE
            WHEN at_lane = 0 THEN low
            WHEN at_lane < 0 THEN {{ queue.mark(box._low_above) }}
            ELSE {{ queue.mark(box._low_below) }}
        END - 1;
        WHILE at_ticket < last_ticket LOOP
            room := batch_size - found;
            EXIT read WHEN room <= 0 OR takes_left = 0;
            takes_left := takes_left - 1;
            -- Only what will be taken is to be locked: as many rows as are needed if all are as long as the longest seen.
            row_limit := CASE WHEN at_lane = 0 AND longest > 1 THEN 1 + (room - 1) / longest ELSE room END;
            IF allowed IS NULL THEN
                WITH {% call parts.take() -%}
                                SELECT w.ctid AS place, w.ticket, w.span
                                FROM {{ box.ready }} AS w
                                WHERE w.lane = at_lane
                                    AND w.ticket > at_ticket
                                    AND w.ticket <= last_ticket
                                    AND (NOT any_paused OR w.topic <> ALL (paused))
                                ORDER BY w.lane, w.ticket
                                LIMIT row_limit
                                FOR UPDATE SKIP LOCKED
                {%- endcall %}, NULL::bigint
                INTO
                    got_rows, got, got_longest, got_first, is_run, got_ids, got_spans, got_topics, got_groups,
                    any_grouped, overdue, got_last, tried_to
                FROM (SELECT gone.* FROM gone ORDER BY gone.ticket) AS g;
            ELSE
                -- Each topic's own order, merged; every candidate is locked only when its turn comes. If a topic has more
                -- than what is within reach, then beyond that others may come first.
                reach := 2 * room + 20;
                WITH candidate AS MATERIALIZED (
                    SELECT n.topic, n.ticket
                    FROM unnest(allowed) AS t (topic)
                    CROSS JOIN LATERAL (
                        SELECT c.topic, c.ticket
                        FROM {{ box.ready }} AS c
                        WHERE c.topic = t.topic
                            AND c.lane = at_lane
                            AND c.ticket > at_ticket
                            AND c.ticket <= last_ticket
                        ORDER BY c.topic, c.lane, c.ticket
                        LIMIT reach
                    ) AS n
                    ORDER BY n.ticket
                ),
                {% call parts.take() -%}
                                SELECT w.place, candidate.ticket, w.span
                                FROM candidate
                                CROSS JOIN LATERAL (
                                    SELECT x.ctid AS place, x.span
                                    FROM {{ box.ready }} AS x
                                    WHERE x.lane = at_lane AND x.ticket = candidate.ticket
                                    FOR UPDATE SKIP LOCKED
                                ) AS w
                                LIMIT row_limit
                {%- endcall %},
                    (
                        SELECT min(f.last)
                        FROM (
                            SELECT max(candidate.ticket) AS last FROM candidate
                            GROUP BY candidate.topic HAVING count(*) = reach
                        ) AS f
                    ),
                    (SELECT min(candidate.ticket) FROM candidate)
                INTO
                    got_rows, got, got_longest, got_first, is_run, got_ids, got_spans, got_topics, got_groups,
                    any_grouped, overdue, got_last, tried_to, first_ticket
                FROM (SELECT gone.* FROM gone ORDER BY gone.ticket) AS g;
            END IF;

            IF may_remember AND at_lane = 0 THEN
                -- Nothing can come to stand before the first any more, up to the settled number.
                first_ticket := least(coalesce(first_ticket, last_ticket + 1), settled + 1);
                IF first_ticket > low + 100 THEN
                    PERFORM set_config(memory_name, concat_ws(' ', topics_hash, low_ticket, first_ticket), false);
                END IF;
                may_remember := false;
            END IF;

            -- Onwards: behind what was taken, or behind what was within reach and could not be.
            next_ticket := least(tried_to, CASE WHEN got >= room OR got_rows >= row_limit THEN got_last END);
            at_ticket := coalesce(next_ticket, last_ticket);
            CONTINUE WHEN got_rows = 0;

            IF got > room THEN
                -- What there is no room for stays, as a run under the number of its own first message.
                INSERT INTO {{ box.ready }} (lane, span, ticket, id, topic)
                SELECT 0, got - room, s.id, s.id, got_topics[got_rows]
                FROM (SELECT got_ids[got_rows] + got_spans[got_rows] - (got - room) AS id) AS s;
                got_spans[got_rows] := got_spans[got_rows] - (got - room);
                got := room;
            END IF;
            longest := CASE WHEN at_lane = 0 THEN got_longest ELSE longest END;

            IF any_grouped OR overdue IS NOT NULL THEN
                is_run := false;
                IF overdue IS NOT NULL THEN
                    PERFORM {{ box._bury }}(overdue, NULL, true);
                END IF;
                -- A group's ticket becomes the messages at its head, as many as leave each other ticket a place.
                SELECT
                    count(*), array_agg(e.id ORDER BY e.place, e.id), array_agg(e.span ORDER BY e.place, e.id),
                    array_agg(e.topic ORDER BY e.place, e.id), array_agg(e.group_id ORDER BY e.place, e.id)
                INTO got, got_ids, got_spans, got_topics, got_groups
                FROM (
                    SELECT u.place, u.id, u.span, u.topic, NULL AS group_id
                    FROM unnest(got_ids, got_spans, got_topics) WITH ORDINALITY AS u (id, span, topic, place)
                    WHERE u.id IS NOT NULL AND u.id <> ALL (coalesce(overdue, '{}'))
                    UNION ALL
                    SELECT min(u.place), c.id, 1, c.topic, c.group_id
                    FROM {{ box._claim_groups }}(
                        array_remove(got_groups, NULL),
                        (
                            SELECT 1 + (room - got) / greatest(1, count(DISTINCT d.group_id))
                            FROM unnest(got_groups) AS d (group_id)
                        )::integer,
                        allowed,
                        paused
                    ) AS c
                    INNER JOIN unnest(got_groups) WITH ORDINALITY AS u (group_id, place) USING (group_id)
                    GROUP BY c.id, c.topic, c.group_id
                ) AS e;
                got := coalesce((SELECT sum(u.span) FROM unnest(got_spans) AS u (span)), 0);
            END IF;

            IF got > 0 THEN
                IF is_run AND (found = 0 OR (found = run_length AND got_first = run_first + found AND got_topics[1] = run_topic)) THEN
                    run_first := coalesce(run_first, got_first);
                    run_length := run_length + got;
                    run_topic := got_topics[1];
                ELSE
                    IF found > 0 AND found = run_length THEN
                        found_ids := ARRAY[run_first];
                        found_spans := ARRAY[run_length];
                        found_topics := ARRAY[run_topic];
                        found_groups := ARRAY[NULL::text];
                    END IF;
                    found_ids := found_ids || got_ids;
                    found_spans := found_spans || got_spans;
                    found_topics := found_topics || got_topics;
                    found_groups := found_groups || got_groups;
                END IF;
                found := found + got;
            END IF;
            IF overdue IS NOT NULL THEN
                -- Where one has expired many may have: they go in a large set.
                EXIT read WHEN sweeps_left = 0;
                sweeps_left := sweeps_left - 1;
                PERFORM {{ box._sweep }}(at_lane, at_ticket, last_ticket, allowed);
            END IF;
        END LOOP;
    END LOOP;

    IF found = 0 THEN
        -- Nobody is kept waiting by a look at what may have come late, or stands where a mark should not be.
        IF {{ queue.mark(box._low_sure) }} < {{ queue.mark(box._low_ticket) }} THEN
            PERFORM {{ box._tick }}(true);
        END IF;
        IF random() < 0.05 THEN
            PERFORM {{ box._patrol }}(32);
        END IF;
        -- Whoever finds nothing is about to wait.
        {{ queue.notify_next() }};
        RETURN;
    END IF;
    IF found = 1 AND batch_size > 1 THEN
        -- Where they come one by one nobody has to look soon whether there is another.
        {{ queue.notify_next() }};
    END IF;

    until_at := {{ db._now }}() + make_interval(secs => lease_seconds);
    IF found = run_length THEN
        RETURN QUERY
        WITH leased AS (
            INSERT INTO {{ box.lease }} (id, owner_token, locked_until, topic)
            SELECT g.id, $1, until_at, run_topic
            FROM generate_series(run_first, run_first + found - 1) AS g (id)
        )
        SELECT
{{ parts.columns() }}
        FROM {{ box.message }} AS m
        WHERE m.id >= run_first AND m.id < run_first + found
        ORDER BY m.id;
        RETURN;
    END IF;
    IF found > cardinality(found_ids) THEN
        SELECT array_agg(e.id), array_agg(e.topic), array_agg(e.group_id)
        INTO found_ids, found_topics, found_groups
        FROM (
            SELECT g.id, u.topic, u.group_id
            FROM unnest(found_ids, found_spans, found_topics, found_groups) WITH ORDINALITY AS u (id, span, topic, group_id, place)
            CROSS JOIN LATERAL generate_series(u.id, u.id + u.span - 1) AS g (id)
            ORDER BY u.place, g.id
        ) AS e;
    END IF;
    RETURN QUERY
    WITH leased AS (
        INSERT INTO {{ box.lease }} (id, owner_token, locked_until, topic, group_id)
        SELECT u.id, $1, until_at, u.topic, u.group_id
        FROM unnest(found_ids, found_topics, found_groups) AS u (id, topic, group_id)
    )
    SELECT
{{ parts.columns() }}
    FROM unnest(found_ids) WITH ORDINALITY AS u (id, place)
    CROSS JOIN LATERAL (
        -- OFFSET 0 keeps it a lookup, whatever the planner knew of the table when it made the plan.
        SELECT w.* FROM {{ box.message }} AS w WHERE w.id = u.id OFFSET 0
    ) AS m
    ORDER BY u.place;
END;
$$;
