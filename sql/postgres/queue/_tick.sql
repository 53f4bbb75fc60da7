{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._tick }}(rescan boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    -- Moves the low marks up, so that scans start behind the dead rows. A mark may pass a number only once no open
    -- transaction can still bring it, and must not wait for anybody else: somebody who only reads, or writes other
    -- tables or another database, may stay open for hours.
    -- Whoever brings numbers has its xid first, and then touches the sequence, which leaves a lock on it until the
    -- transaction ends. So a tick notes the last number and the time, and after that draws an xid of its own. All who
    -- had brought a number up to that one by then have an earlier xid and hold the lock. They are over once the oldest
    -- running xid has reached the noted one; or, if it has not, once nobody with an earlier xid holds the lock.
    -- (The snapshot's xmax would not do for the xid: it is the one after the last that has ended.)
    -- What is visible after that is all that can be, so each mark goes to the first visible row. Only a transaction that
    -- has deleted from a table leaves that table's mark alone: a rollback would bring its rows back.
    -- One caller at a time, the others go on without; the lock is taken in a subtransaction and rolled back with it, so
    -- that a claim whose transaction stays open keeps nobody from ticking. setval is not rolled back.
    -- Somebody who has brought a number and stays open would hold all of this up. After a second of that the mark of the
    -- log, which everybody reads, goes on without them, and from then on each tick looks through a slice of what the mark
    -- has left behind unproven: what has been committed there late goes to the tail. When a whole round found nobody open
    -- at its beginning, nothing is left behind.
    -- A mark that is too low only costs time. One that is too high (a dump restored, a clock set back) is found by a patrol.
    -- rescan: look through a large slice of what was left behind
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    has_written CONSTANT boolean := pg_current_xact_id_if_assigned() IS NOT NULL;
    next_ticket bigint;
    next_time bigint;
    next_xid bigint;
    next_comebacks bigint;
    noted_ticket bigint;
    noted_time bigint;
    noted_xid bigint;
    noted_comebacks bigint;
    oldest bigint;
    -- Whether all who had brought a number up to the noted one are over; and whether they are but for those that the
    -- mark of the log need not wait for, with an xid before that of the latecomers.
    is_over boolean := false;
    is_passable boolean := false;
    late_xid bigint;
    low_sure bigint;
    late_at bigint;
    late_to bigint;
    round_end bigint;
    next_late bigint;
    -- The tables that this transaction has written.
    own oid[] := '{}';
    paused text[];
    paused_bits bigint;
    low_log bigint;
    next_low bigint;
    low bigint;
    low_at timestamptz;
BEGIN
    -- Under an older snapshot what is visible would be out of date.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    {{ queue.arrive() }};
    -- Before the first number the sequence shows 1 already.
    SELECT s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END INTO next_ticket FROM {{ box._ids }} AS s;
    next_time := (extract(epoch FROM {{ db._now }}()) * 1000000)::bigint;
    next_comebacks := {{ queue.mark(box._comebacks) }};
    BEGIN
        PERFORM FROM {{ db._box }} AS b WHERE b.name = {{ box_name | literal }} FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        -- The lock has drawn the xid, and left it in the row. All that run are at or above the oldest.
        oldest := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
        SELECT oldest + ((b.xmax::text::bigint - oldest) & 4294967295) INTO next_xid
        FROM {{ db._box }} AS b
        WHERE b.name = {{ box_name | literal }};
        noted_xid := {{ queue.mark(box._tick_xid) }};
        noted_ticket := {{ queue.mark(box._tick_ticket) }};
        noted_time := {{ queue.mark(box._tick_time) }};
        noted_comebacks := {{ queue.mark(box._tick_comebacks) }};

        -- A note from another server, or from before the clock was set back, is none.
        IF noted_xid > 0 AND noted_xid <= next_xid AND noted_ticket <= next_ticket AND noted_time <= next_time THEN
            is_over := oldest >= noted_xid;
            is_passable := is_over;
            late_xid := {{ queue.mark(box._late_xid) }};
            IF NOT is_over OR has_written THEN
                WITH held AS MATERIALIZED (
                    SELECT k.virtualtransaction, k.locktype, k.database, k.relation, k.mode, k.transactionid, k.pid
                    FROM pg_locks AS k
                    WHERE k.granted AND k.locktype IN ('relation', 'transactionid')
                )
                SELECT
                    is_over OR count(*) FILTER (WHERE t.xid < noted_xid) = 0,
                    is_over OR count(*) FILTER (WHERE t.xid < noted_xid AND t.xid >= late_xid) = 0,
                    ARRAY(
                        SELECT o.relation
                        FROM held AS o
                        WHERE o.pid = pg_backend_pid() AND o.locktype = 'relation' AND o.mode = 'RowExclusiveLock'
                            AND o.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
                    )
                INTO is_over, is_passable, own
                FROM held AS h
                INNER JOIN held AS x ON x.virtualtransaction = h.virtualtransaction
                CROSS JOIN LATERAL (
                    SELECT oldest + ((x.transactionid::text::bigint - oldest) & 4294967295) AS xid
                ) AS t
                -- Who only looks, as claims do, has another lock.
                WHERE h.locktype = 'relation'
                    AND h.mode = 'RowExclusiveLock'
                    AND h.relation = {{ box._ids | literal }}::regclass
                    AND h.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
                    AND x.locktype = 'transactionid'
                    AND x.mode = 'ExclusiveLock';
            END IF;
        ELSE
            noted_xid := 0;
            IF noted_time > next_time THEN
                -- The clock was set back, and what is due now may be below the marks.
                PERFORM setval({{ box._low_due | literal }}, 0), setval({{ box._low_done | literal }}, 0);
            END IF;
        END IF;

        low_log := {{ queue.mark(box._low_ticket) }};
        low_sure := {{ queue.mark(box._low_sure) }};
        IF noted_xid > 0 AND NOT is_passable AND noted_time < next_time - 1000000 AND next_ticket > low_log + 5000 THEN
            PERFORM setval({{ box._late_xid | literal }}, noted_xid);
            is_passable := true;
        END IF;
        IF is_passable AND {{ box.ready | literal }}::regclass <> ALL (own) THEN
            SELECT coalesce(min(f.ticket), noted_ticket + 1) INTO next_low
            FROM (
                SELECT r.ticket
                FROM {{ box.ready }} AS r
                WHERE r.lane = 0 AND r.ticket >= low_log AND r.ticket <= noted_ticket
                ORDER BY r.lane, r.ticket
                LIMIT 1
            ) AS f;
            IF is_over AND low_sure >= low_log THEN
                low_sure := next_low;
                PERFORM setval({{ box._low_sure | literal }}, low_sure);
            END IF;
            low_log := next_low;
            PERFORM setval({{ box._low_ticket | literal }}, low_log);

            paused := ARRAY(SELECT p.topic FROM {{ box.paused }} AS p ORDER BY p.topic);
            IF paused <> '{}' THEN
                paused_bits := {{ queue.paused_bits("paused") }};
                next_low := greatest(low_log, {{ queue.low_open("paused_bits") }});
                SELECT coalesce(min(f.ticket), noted_ticket + 1) INTO next_low
                FROM (
                    SELECT r.ticket
                    FROM {{ box.ready }} AS r
                    WHERE r.lane = 0 AND r.ticket >= next_low AND r.ticket <= noted_ticket AND r.topic <> ALL (paused)
                    ORDER BY r.lane, r.ticket
                    LIMIT 1
                ) AS f;
                PERFORM setval({{ box._low_open | literal }}, next_low * 32768 + paused_bits);
            END IF;
        END IF;

        IF is_over THEN
            PERFORM setval({{ box._settled | literal }}, noted_ticket);
            IF {{ box.ready | literal }}::regclass <> ALL (own) THEN
                IF EXISTS (SELECT FROM {{ box.lane }}) THEN
{% for mark, side in ((box._low_above, "<"), (box._low_below, ">")) %}
                    low := {{ queue.mark(mark) }};
                    SELECT coalesce(min(f.ticket), noted_ticket + 1) INTO low
                    FROM (SELECT DISTINCT n.lane FROM {{ box.lane }} AS n WHERE n.lane {{ side }} 0) AS l
                    CROSS JOIN LATERAL (
                        SELECT r.ticket
                        FROM {{ box.ready }} AS r
                        WHERE r.lane = l.lane AND r.ticket >= low AND r.ticket <= noted_ticket
                        ORDER BY r.lane, r.ticket
                        LIMIT 1
                    ) AS f;
                    PERFORM setval({{ mark | literal }}, low);
{% endfor %}
                END IF;
            END IF;

            IF {{ box.scheduled | literal }}::regclass <> ALL (own) THEN
                low_at := {{ queue.time_mark(box._low_due) }};
                SELECT min(f.due_at) INTO low_at
                FROM (
                    SELECT s.due_at
                    FROM {{ box.scheduled }} AS s
                    WHERE s.due_at >= low_at AND s.due_at <= to_timestamp(noted_time / 1000000.0)
                    ORDER BY s.due_at
                    LIMIT 1
                ) AS f;
                PERFORM setval({{ box._low_due | literal }}, greatest(0, least(
                    (extract(epoch FROM low_at) * 1000000)::bigint, noted_time) - 100000));
            END IF;

            IF {{ queue.mark(box._grouped) }} > 0
                AND {{ box.group_member | literal }}::regclass <> ALL (own) AND {{ box.lease | literal }}::regclass <> ALL (own)
                AND {{ queue.mark(box._comebacks) }} = noted_comebacks
            THEN
                low := {{ queue.mark(box._low_grouped) }};
                SELECT least(member.id, leased.id, noted_ticket + 1) INTO low
                FROM (SELECT 1) AS one
                LEFT JOIN LATERAL (
                    SELECT gm.id FROM {{ box.group_member }} AS gm
                    WHERE gm.id >= low AND gm.id <= noted_ticket AND gm.id > 0
                    ORDER BY gm.id
                    LIMIT 1
                ) AS member ON true
                LEFT JOIN LATERAL (
                    SELECT l.id FROM {{ box.lease }} AS l
                    WHERE l.group_id IS NOT NULL AND l.id > 0 AND l.id + 0 >= low AND l.id + 0 <= noted_ticket
                    ORDER BY l.id + 0
                    LIMIT 1
                ) AS leased ON true;
                PERFORM setval({{ box._low_grouped | literal }}, low);
                -- Whoever came back meanwhile may have lowered it just before.
                IF {{ queue.mark(box._comebacks) }} <> noted_comebacks THEN
                    PERFORM setval({{ box._low_grouped | literal }}, 0);
                END IF;
            END IF;

            IF {{ box.tally | literal }}::regclass <> ALL (own) THEN
                low := {{ queue.mark(box._low_tally) }};
                SELECT coalesce(min(f.no), noted_ticket + 1) INTO low
                FROM (
                    SELECT t.no FROM {{ box.tally }} AS t
                    WHERE t.no >= low AND t.no <= noted_ticket
                    ORDER BY t.no
                    LIMIT 1
                ) AS f;
                PERFORM setval({{ box._low_tally | literal }}, low);
            END IF;

            IF {{ box.done | literal }}::regclass <> ALL (own) THEN
                low_at := {{ queue.time_mark(box._low_done) }};
                SELECT min(f.processed_at) INTO low_at
                FROM (
                    SELECT n.processed_at FROM {{ box.done }} AS n
                    WHERE n.processed_at >= low_at AND n.processed_at <= to_timestamp(noted_time / 1000000.0)
                    ORDER BY n.processed_at
                    LIMIT 1
                ) AS f;
                PERFORM setval({{ box._low_done | literal }}, greatest(0, least(
                    (extract(epoch FROM low_at) * 1000000)::bigint, noted_time) - 100000));
            END IF;
        END IF;

        -- Noted once and for all that is open now; the xid last, and none while the note is half written.
        IF is_passable OR noted_xid = 0 THEN
            PERFORM setval({{ box._tick_xid | literal }}, 0);
            PERFORM setval({{ box._tick_ticket | literal }}, next_ticket);
            PERFORM setval({{ box._tick_time | literal }}, next_time);
            PERFORM setval({{ box._tick_comebacks | literal }}, next_comebacks);
            PERFORM setval({{ box._tick_xid | literal }}, next_xid);
        END IF;
        RAISE no_data_found;
    EXCEPTION
        WHEN no_data_found THEN NULL;
    END;

    IF low_sure < low_log AND NOT has_written THEN
        late_at := greatest({{ queue.mark(box._late_at) }}, low_sure);
        late_to := {{ queue.mark(box._late_to) }};
        IF late_at = low_sure THEN
            -- A round begins; if everybody is over by now, then what it has gone through is sure.
            late_to := CASE WHEN is_over THEN low_log ELSE 0 END;
        END IF;
        round_end := coalesce(nullif(late_to, 0), low_log);
        next_late := least(round_end, late_at + CASE WHEN rescan THEN 500000 ELSE 20000 END);
        WITH late AS (
            DELETE FROM {{ box.ready }} AS r
            WHERE r.ctid = ANY (ARRAY(
                SELECT w.ctid
                FROM {{ box.ready }} AS w
                WHERE w.lane = 0 AND w.ticket >= late_at AND w.ticket < next_late
                ORDER BY w.lane, w.ticket
                LIMIT 1000
                FOR UPDATE SKIP LOCKED
            ))
            RETURNING r.ticket, r.id, r.span, r.expires_at, r.topic, r.group_id
        ),
        moved AS (
            INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic, group_id)
            SELECT 0, nextval({{ box._ids | literal }}), e.id, e.expires_at, e.topic, e.group_id
            FROM (
                SELECT late.id + g.step AS id, late.expires_at, late.topic, late.group_id
                FROM late
                CROSS JOIN LATERAL generate_series(0, late.span - 1) AS g (step)
                ORDER BY late.ticket, g.step
            ) AS e
        )
        -- Where there were more, the next slice begins behind those that were moved; and what was moved may be rolled back.
        SELECT
            CASE WHEN count(*) = 1000 THEN max(late.ticket) + 1 ELSE next_late END,
            CASE WHEN count(*) = 0 THEN late_to ELSE 0 END
        INTO next_late, late_to
        FROM late;
        PERFORM setval({{ box._late_to | literal }}, late_to);
        IF next_late < round_end THEN
            PERFORM setval({{ box._late_at | literal }}, next_late);
        ELSE
            low_sure := greatest(low_sure, late_to);
            PERFORM setval({{ box._low_sure | literal }}, low_sure), setval({{ box._late_at | literal }}, low_sure);
        END IF;
    END IF;

    IF is_over THEN
        -- Many tallies become one a topic; what somebody else is just adding up is left to them. The sum takes a number
        -- of those that it stands for: drawing one would make the low marks wait for this transaction.
        low := {{ queue.mark(box._low_tally) }};
        WITH folded AS (
            DELETE FROM {{ box.tally }} AS t
            WHERE t.no IN (
                SELECT c.no
                FROM {{ box.tally }} AS c
                WHERE c.no >= low AND c.no <= noted_ticket
                ORDER BY c.no
                LIMIT 5000
                FOR UPDATE SKIP LOCKED
            )
            RETURNING t.no, t.topic, t.done, t.dead
        )
        INSERT INTO {{ box.tally }} (no, topic, done, dead)
        SELECT f.no, f.topic, f.done, f.dead
        FROM (
            SELECT max(folded.no) AS no, folded.topic, sum(folded.done) AS done, sum(folded.dead) AS dead
            FROM folded
            GROUP BY folded.topic
        ) AS f
        WHERE f.done <> 0 OR f.dead <> 0;
    END IF;
END;
$$;
