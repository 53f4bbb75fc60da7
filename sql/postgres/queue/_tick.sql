CREATE OR REPLACE FUNCTION {{ box._tick }}(rescan boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    -- Moves the low marks up, so that scans start behind the dead rows. A mark may pass a ticket only once no open
    -- transaction can still bring it: a tick notes the last ticket and the time, and then draws its own xid; every
    -- transaction that drew a ticket up to that one had an earlier xid, so all of them are over when the oldest
    -- running xid has reached the noted one. (The snapshot's xmax would not do: it is the one after the last xid
    -- that has ended, and a running one may be above it.) So a tick comes first in its transaction: with an older
    -- xid it could miss a producer, and what the transaction has deleted would be passed though a rollback brings
    -- it back. One caller at a time; the others go on without.
    -- A mark that is too low only costs time. One that is too high (a dump restored) is mended by a rescan, which
    -- may come at any time.
    -- rescan: look from the very start
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    oldest bigint;
    noted_xid bigint;
    noted_ticket bigint;
    noted_time bigint;
    next_xid bigint;
    next_ticket bigint;
    next_time bigint;
    low bigint;
    low_at timestamptz;
BEGIN
    -- Under an older snapshot what is visible would be out of date.
    IF current_setting('transaction_isolation') <> 'read committed'
        OR NOT pg_try_advisory_xact_lock(hashtextextended({{ (schema ~ "." ~ box_name ~ ":tick") | literal }}, 0))
    THEN
        RETURN;
    END IF;

    IF pg_current_xact_id_if_assigned() IS NULL THEN
        -- Before the first ticket the sequence shows 1 already.
        SELECT s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END INTO next_ticket FROM {{ box._ids }} AS s;
        next_time := (extract(epoch FROM {{ db._now }}()) * 1000000)::bigint;
        next_xid := pg_current_xact_id()::text::bigint;
    END IF;
    oldest := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
    SELECT s.last_value INTO noted_xid FROM {{ box._tick_xid }} AS s;
    SELECT s.last_value INTO noted_ticket FROM {{ box._tick_ticket }} AS s;
    SELECT s.last_value INTO noted_time FROM {{ box._tick_time }} AS s;

    IF rescan THEN
        SELECT r.ticket INTO low FROM {{ box.ready }} AS r WHERE r.lane = 0 ORDER BY r.lane, r.ticket LIMIT 1;
        IF low < (SELECT s.last_value FROM {{ box._low_ticket }} AS s) THEN
            PERFORM setval({{ box._low_ticket | literal }}, low);
        END IF;
        SELECT s.due_at INTO low_at FROM {{ box.scheduled }} AS s ORDER BY s.due_at LIMIT 1;
        IF low_at < to_timestamp((SELECT s.last_value FROM {{ box._low_due }} AS s) / 1000000.0) THEN
            PERFORM setval({{ box._low_due | literal }}, (extract(epoch FROM low_at) * 1000000)::bigint - 1000000);
        END IF;
        SELECT l.locked_until INTO low_at FROM {{ box.lease }} AS l ORDER BY l.locked_until LIMIT 1;
        IF low_at < to_timestamp((SELECT s.last_value FROM {{ box._low_lease }} AS s) / 1000000.0) THEN
            PERFORM setval({{ box._low_lease | literal }}, (extract(epoch FROM low_at) * 1000000)::bigint - 1000000);
        END IF;
        SELECT t.no INTO low FROM {{ box.tally }} AS t ORDER BY t.no LIMIT 1;
        IF low < (SELECT s.last_value FROM {{ box._low_tally }} AS s) THEN
            PERFORM setval({{ box._low_tally | literal }}, low);
        END IF;
    END IF;

    IF next_xid IS NULL THEN
        RETURN;
    END IF;
    IF noted_xid > 0 AND oldest >= noted_xid THEN
        SELECT r.ticket INTO low
        FROM {{ box.ready }} AS r
        WHERE r.lane = 0
            AND r.ticket >= (SELECT s.last_value FROM {{ box._low_ticket }} AS s)
            AND r.ticket <= noted_ticket
        ORDER BY r.lane, r.ticket
        LIMIT 1;
        PERFORM setval({{ box._low_ticket | literal }}, least(low, noted_ticket + 1));

        SELECT s.due_at INTO low_at
        FROM {{ box.scheduled }} AS s
        WHERE s.due_at >= to_timestamp((SELECT q.last_value FROM {{ box._low_due }} AS q) / 1000000.0)
            AND s.due_at <= to_timestamp(noted_time / 1000000.0)
        ORDER BY s.due_at
        LIMIT 1;
        PERFORM setval({{ box._low_due | literal }}, greatest(0, least(
            (extract(epoch FROM low_at) * 1000000)::bigint, noted_time) - 100000));

        -- A lease lasts a second at least, so what is not visible yet ends later than that. By half of it the mark may run
        -- ahead of the clock: then nobody walks over the dead rows of leases whose time would be over just now.
        SELECT l.locked_until INTO low_at
        FROM {{ box.lease }} AS l
        WHERE l.locked_until >= to_timestamp((SELECT q.last_value FROM {{ box._low_lease }} AS q) / 1000000.0)
            AND l.locked_until <= to_timestamp(noted_time / 1000000.0 + 0.6)
        ORDER BY l.locked_until
        LIMIT 1;
        PERFORM setval({{ box._low_lease | literal }}, greatest(0, least(
            (extract(epoch FROM low_at) * 1000000)::bigint, noted_time + 600000) - 100000));

        SELECT t.no INTO low
        FROM {{ box.tally }} AS t
        WHERE t.no >= (SELECT s.last_value FROM {{ box._low_tally }} AS s)
            AND t.no <= noted_ticket
        ORDER BY t.no
        LIMIT 1;
        PERFORM setval({{ box._low_tally | literal }}, least(low, noted_ticket + 1));

        -- No tally up to the noted number can appear any more, so folding them leaves none behind.
        WITH folded AS (
            DELETE FROM {{ box.tally }} AS t
            WHERE t.no IN (
                SELECT c.no
                FROM {{ box.tally }} AS c
                WHERE c.no >= (SELECT s.last_value FROM {{ box._low_tally }} AS s) AND c.no <= noted_ticket
                ORDER BY c.no
                LIMIT 5000
                FOR UPDATE SKIP LOCKED
            )
            RETURNING t.topic, t.done
        )
        INSERT INTO {{ box.tally_total }} AS t (topic, done)
        SELECT folded.topic, sum(folded.done) FROM folded GROUP BY folded.topic ORDER BY folded.topic
        ON CONFLICT (topic) DO UPDATE SET done = t.done + excluded.done;
        noted_xid := 0;
    END IF;

    -- Noted once and for all that is open now; invalid while half written, and after a restore into a younger cluster.
    IF noted_xid = 0 OR noted_xid > next_xid THEN
        PERFORM setval({{ box._tick_xid | literal }}, 0);
        PERFORM setval({{ box._tick_ticket | literal }}, next_ticket);
        PERFORM setval({{ box._tick_time | literal }}, next_time);
        PERFORM setval({{ box._tick_xid | literal }}, next_xid);
    END IF;
END;
$$;
