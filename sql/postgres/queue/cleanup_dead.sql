{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.cleanup_dead }}(retention_seconds double precision, batch_size integer DEFAULT 1000)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Deletes up to batch_size dead, expired or cancelled messages that died longer ago than the retention, oldest
    -- first.
    -- retention_seconds: from 0 to 1000000000
    -- batch_size: from 1 to 10000
    -- returns: affected
    -- errors: PB001
    -- locks: message
    -- role: worker
DECLARE
    now_at timestamptz := {{ db._now }}();
    gone_ids bigint[];
    keys text[];
    keyed_ids bigint[];
BEGIN
    PERFORM {{ db._check_cleanup }}(retention_seconds, batch_size);
    WITH gone AS (
        DELETE FROM {{ box.dead }} AS d
        WHERE d.ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM {{ box.dead }} AS c
            WHERE c.died_at <= now_at - make_interval(secs => retention_seconds)
            ORDER BY c.died_at
            LIMIT batch_size
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING d.id, d.topic
    ),
    counted AS (
        {{ queue.count_dead("gone", "-") }}
    )
    SELECT array_agg(gone.id) INTO gone_ids FROM gone;
{% if kind == "inbox" %}
    -- In key order, like a batch enqueue that renews them.
    {{ queue.lock_in_key_order("gone_ids") }};
{% endif %}
    WITH gone AS (
        DELETE FROM {{ box.message }} AS m WHERE m.id = ANY (gone_ids) RETURNING m.id, m.collapse_key
    )
    SELECT array_agg(gone.collapse_key), array_agg(gone.id)
    INTO keys, keyed_ids
    FROM gone
    WHERE gone.collapse_key IS NOT NULL;
    {{ queue.forget_collapse("keys", "keyed_ids") }};
{% if box_name == "outbox" %}
    IF EXISTS (SELECT FROM {{ db.join_member }}) THEN
        PERFORM {{ db._join_mark }}(gone_ids, 'failed');
    END IF;
{% endif %}
    RETURN QUERY SELECT coalesce(cardinality(gone_ids), 0);
END;
$$;
