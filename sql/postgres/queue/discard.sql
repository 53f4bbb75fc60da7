{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.discard }}(ids bigint[])
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Deletes the dead, expired and cancelled among these messages; all others are passed over.
    -- ids: not null
    -- returns: affected
    -- errors: PB001
    -- locks: message
    -- role: operator
DECLARE
    gone_ids bigint[];
    keys text[];
    keyed_ids bigint[];
BEGIN
    IF ids IS NULL THEN
        PERFORM {{ db._reject }}('ids', 'must not be null');
    END IF;
    PERFORM FROM {{ box.dead }} AS d WHERE d.id = ANY (ids) ORDER BY d.id FOR UPDATE;
    WITH gone AS (
        DELETE FROM {{ box.dead }} AS d WHERE d.id = ANY (ids) RETURNING d.id, d.topic
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
