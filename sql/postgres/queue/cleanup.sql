{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.cleanup }}(retention_seconds double precision, batch_size integer DEFAULT 1000)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Deletes up to batch_size Done messages older than the retention, oldest first, and nothing that is not Done.
    -- One short transaction that skips locked rows; call it until it answers 0.
{% if kind == "outbox" %}
    -- Deduplication keys past their window go too, uncounted.
{% endif %}
{% if box_name == "outbox" %}
    -- So do joins that were over, and last changed, before the retention.
{% endif %}
    -- retention_seconds: from 0 to 1000000000
    -- batch_size: from 1 to 10000
    -- returns: affected
    -- errors: PB001
{% if box_name == "outbox" %}
    -- locks: join, message
{% else %}
    -- locks: message
{% endif %}
    -- role: worker
DECLARE
    now_at timestamptz := {{ db._now }}();
    until_at timestamptz;
    from_at timestamptz;
    room integer;
    more_ids bigint[];
    gone_ids bigint[] := '{}';
    keys text[];
    keyed_ids bigint[];
BEGIN
    PERFORM {{ db._check_cleanup }}(retention_seconds, batch_size);
    until_at := now_at - make_interval(secs => retention_seconds);
    -- What earlier cleanups have removed may be dead rows yet: the mark leads past them.
    {{ queue.arrive() }};
    PERFORM {{ box._tick }}();
    from_at := {{ queue.time_mark(box._low_done) }};
{% if box_name == "outbox" %}
    PERFORM {{ db._join_cleanup }}(until_at, batch_size);
{% endif %}
    LOOP
        room := batch_size - cardinality(gone_ids);
        EXIT WHEN room = 0;
        -- As many rows as fit if all are as long as the longest of the next; what is too much of the last one stays.
        WITH gone AS (
            DELETE FROM {{ box.done }} AS n
            WHERE n.ctid = ANY (ARRAY(
                SELECT c.ctid
                FROM {{ box.done }} AS c
                WHERE c.processed_at >= from_at AND c.processed_at <= until_at
                ORDER BY c.processed_at
                LIMIT (
                    SELECT greatest(1, room / max(h.span))
                    FROM (
                        SELECT d.span FROM {{ box.done }} AS d
                        WHERE d.processed_at >= from_at AND d.processed_at <= until_at
                        ORDER BY d.processed_at
                        LIMIT 10
                    ) AS h
                )
                FOR UPDATE SKIP LOCKED
            ))
            RETURNING n.*
        ),
        part AS (
            SELECT
                gone.*, least(gone.span, room - sum(gone.span) OVER (ORDER BY gone.processed_at, gone.id) + gone.span) AS taken
            FROM gone
        ),
        kept AS (
            INSERT INTO {{ box.done }} (id, processed_at, span, processed_by)
            SELECT part.id + greatest(part.taken, 0), part.processed_at, part.span - greatest(part.taken, 0), part.processed_by
            FROM part
            WHERE part.taken < part.span
        )
        SELECT array_agg(g.id), max(part.processed_at) INTO more_ids, from_at
        FROM part
        CROSS JOIN generate_series(part.id, part.id + part.taken - 1) AS g (id);
        EXIT WHEN more_ids IS NULL;
        gone_ids := gone_ids || more_ids;
    END LOOP;
    IF gone_ids <> '{}' THEN
{% if kind == "inbox" %}
        -- In key order, like a batch enqueue that renews them.
        {{ queue.lock_in_key_order("gone_ids") }};
{% endif %}
        WITH gone AS (
            DELETE FROM {{ box.message }} AS m WHERE m.id = ANY (gone_ids) RETURNING m.id, m.topic, m.collapse_key
        ),
        counted AS (
            INSERT INTO {{ box.tally }} (no, topic, done)
            SELECT nextval({{ box._ids | literal }}), t.topic, -t.done
            FROM (SELECT gone.topic, count(*) AS done FROM gone WHERE gone.topic IS NOT NULL GROUP BY gone.topic) AS t
        )
        SELECT array_agg(gone.collapse_key), array_agg(gone.id)
        INTO keys, keyed_ids
        FROM gone
        WHERE gone.collapse_key IS NOT NULL;
        {{ queue.forget_collapse("keys", "keyed_ids") }};
{% if box_name == "outbox" %}
        IF EXISTS (SELECT FROM {{ db.join_member }}) THEN
            PERFORM {{ db._join_mark }}(gone_ids, 'completed');
        END IF;
{% endif %}
    END IF;
{% if kind == "outbox" %}

    DELETE FROM {{ box.dedup }} AS d
    WHERE d.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM {{ box.dedup }} AS c
        WHERE c.seen_at <= now_at - make_interval(secs => (
            SELECT s.value::double precision FROM {{ box.settings }} AS s WHERE s.name = 'dedup_window_seconds'
        ))
        ORDER BY c.seen_at
        LIMIT batch_size
        FOR UPDATE SKIP LOCKED
    ));
{% endif %}

    IF {{ queue.mark(box._grouped) }} > 0 THEN
        PERFORM {{ box._end_groups }}();
    END IF;
    {{ queue.note_upkeep(box._cleaned) }};
    RETURN QUERY SELECT cardinality(gone_ids);
END;
$$;
