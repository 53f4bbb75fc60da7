CREATE OR REPLACE FUNCTION {{ box.cleanup }}(retention_seconds numeric, batch_size integer DEFAULT 1000)
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
    -- role: operator
DECLARE
    now_at timestamptz := {{ db._now }}();
    gone_ids bigint[];
BEGIN
    PERFORM {{ db._check_cleanup }}(retention_seconds, batch_size);
{% if box_name == "outbox" %}
    PERFORM {{ db._join_cleanup }}(now_at - make_interval(secs => retention_seconds::double precision), batch_size);
{% endif %}
    WITH gone AS (
        DELETE FROM {{ box.done }} AS n
        WHERE n.ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM {{ box.done }} AS c
            WHERE c.processed_at <= now_at - make_interval(secs => retention_seconds::double precision)
            ORDER BY c.processed_at
            LIMIT batch_size
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING n.id
    )
    SELECT array_agg(gone.id) INTO gone_ids FROM gone;
    IF gone_ids IS NOT NULL THEN
{% if kind == "inbox" %}
        -- In id order, like a batch enqueue that renews them.
        PERFORM FROM {{ box.message }} AS m WHERE m.id = ANY (gone_ids) ORDER BY m.id FOR UPDATE;
{% endif %}
        WITH gone AS (
            DELETE FROM {{ box.message }} AS m WHERE m.id = ANY (gone_ids) RETURNING m.topic
        )
        INSERT INTO {{ box.tally }} (no, topic, done)
        SELECT nextval({{ box._ids | literal }}), t.topic, -t.done
        FROM (SELECT gone.topic, count(*) AS done FROM gone WHERE gone.topic IS NOT NULL GROUP BY gone.topic) AS t;
        DELETE FROM {{ box.collapse }} AS c
        WHERE c.id = ANY (gone_ids)
            AND c.collapse_key IN (SELECT c.collapse_key FROM {{ box.collapse }} AS c WHERE c.id = ANY (gone_ids));
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
    RETURN QUERY SELECT coalesce(cardinality(gone_ids), 0);
END;
$$;
