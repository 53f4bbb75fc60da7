CREATE OR REPLACE FUNCTION {{ db._join_fold }}(joins uuid[], own_joins uuid[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Looks at joins whose probes the caller has taken in an earlier statement: of those that are complete, or over
    -- already, the join.wait message becomes ready at the tail, and where the log has grown it is folded.
    -- Nothing has to be locked to see that a join is complete. Whatever makes it so, a step or its join_wait, leaves a
    -- probe, and who takes that after it was committed sees it and everything before; so the last probe is enough.
    -- A probe of the caller's own transaction proves nothing (two that are open at the same time do not see each
    -- other's steps, nor a join_wait): unless the join turns out to be complete, and somebody to wait for it, it goes
    -- back, for the next claim after the commit.
    -- joins: without repeats
    -- own_joins: those of them that the caller's transaction has left a probe of
    -- returns: none
    -- errors: none
    -- locks: join
    -- role: internal
DECLARE
    missing uuid[];
    crowded uuid[];
    over uuid[];
    waiting bigint[];
    awake uuid[];
    back bigint[];
    crowded_join uuid;
BEGIN
    -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
    SELECT
        array_agg(s.join_id) FILTER (WHERE s.status IS NULL),
        array_agg(s.join_id) FILTER (WHERE s.rows > 64),
        array_agg(s.join_id) FILTER (WHERE s.status <> 'Pending' OR (s.is_over AND s.wait_id IS NOT NULL)),
        array_agg(s.join_id) FILTER (WHERE s.is_over AND s.wait_id IS NOT NULL),
        array_agg(s.wait_id) FILTER (WHERE s.is_over AND s.wait_id IS NOT NULL)
    INTO missing, crowded, over, awake, waiting
    FROM (
        SELECT
            u.join_id, j.status, j.wait_id, t.rows,
            j.status <> 'Pending' OR j.completed_steps + j.failed_steps + t.steps >= j.expected_steps AS is_over
        FROM unnest(joins) AS u (join_id)
        LEFT JOIN LATERAL (
            SELECT w.* FROM {{ db.join }} AS w WHERE w.join_id = u.join_id OFFSET 0
        ) AS j ON true
        CROSS JOIN LATERAL (
            SELECT count(*) AS rows, coalesce(sum(l.completed + l.failed), 0) AS steps
            FROM {{ db.join_tally }} AS l
            WHERE l.join_id = u.join_id
        ) AS t
    ) AS s;

    IF own_joins IS NOT NULL OR waiting IS NOT NULL THEN
        -- The sequence is touched before the clock is read: the low marks rest on that.
        PERFORM pg_sequence_last_value({{ db._outbox_ids | literal }});
    END IF;
    IF own_joins IS NOT NULL THEN
        INSERT INTO {{ db.outbox_scheduled }} (due_at, no, lane, topic, join_id, probe_xid)
        SELECT {{ db._now }}(), nextval({{ db._outbox_ids | literal }}), 0, '', u.join_id, pg_current_xact_id()
        FROM unnest(own_joins) AS u (join_id)
        WHERE u.join_id <> ALL (coalesce(over, '{}')) AND u.join_id <> ALL (coalesce(missing, '{}'));
    END IF;
    IF waiting IS NOT NULL THEN
        WITH gone AS (
            DELETE FROM {{ db.outbox_scheduled }} AS s
            WHERE s.ctid = ANY (ARRAY(
                -- Looked up with locks, so in a subquery of its own, whatever the planner knew of the table.
                SELECT f.ctid
                FROM {{ db.outbox_message }} AS m
                CROSS JOIN LATERAL (
                    SELECT c.ctid
                    FROM {{ db.outbox_scheduled }} AS c
                    WHERE c.due_at = m.due_at AND c.no = m.id
                    FOR UPDATE SKIP LOCKED
                ) AS f
                WHERE m.id = ANY (waiting)
            ))
            RETURNING s.id, s.lane, s.topic, s.expires_at
        ),
        moved AS (
            INSERT INTO {{ db.outbox_ready }} (lane, ticket, id, expires_at, topic)
            SELECT gone.lane, nextval({{ db._outbox_ids | literal }}), gone.id, gone.expires_at, gone.topic
            FROM gone
        )
        SELECT array_agg(gone.id) INTO back FROM gone;
        UPDATE {{ db.outbox_message }} AS m SET due_at = NULL WHERE m.id = ANY (back);

        -- One that somebody is just handling, or moving, may have been asked too early: look again a little later.
        INSERT INTO {{ db.outbox_scheduled }} (due_at, no, lane, topic, join_id)
        SELECT {{ db._now }}() + interval '0.2 seconds', nextval({{ db._outbox_ids | literal }}), 0, '', u.join_id
        FROM unnest(awake, waiting) AS u (join_id, id)
        WHERE u.id <> ALL (coalesce(back, '{}'))
            AND (
                EXISTS (SELECT FROM {{ db.outbox_lease }} AS l WHERE l.id = u.id OFFSET 0)
                OR EXISTS (
                    SELECT FROM {{ db.outbox_message }} AS m
                    CROSS JOIN LATERAL (
                        SELECT FROM {{ db.outbox_scheduled }} AS c WHERE c.due_at = m.due_at AND c.no = m.id OFFSET 0
                    ) AS s
                    WHERE m.id = u.id
                    OFFSET 0
                )
            );
    END IF;

    IF crowded IS NOT NULL THEN
        -- Where a join is locked its log grows on; nothing depends on the fold.
        FOR crowded_join IN
            SELECT j.join_id FROM {{ db.join }} AS j WHERE j.join_id = ANY (crowded) FOR NO KEY UPDATE SKIP LOCKED
        LOOP
            PERFORM {{ db._join_compact }}(crowded_join);
        END LOOP;
    END IF;
    IF missing IS NOT NULL THEN
        -- Steps that were settled while a cleanup was removing their join.
        DELETE FROM {{ db.join_tally }} AS t
        WHERE t.ctid = ANY (ARRAY(
            SELECT c.ctid FROM {{ db.join_tally }} AS c WHERE c.join_id = ANY (missing) FOR UPDATE SKIP LOCKED
        ));
    END IF;
END;
$$;
