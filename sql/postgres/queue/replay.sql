{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.replay }}(ids bigint[])
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Brings dead, expired and cancelled messages back: claimable at once behind what waits already, attempt 0,
    -- last_error kept.
    -- All or none: a message among them that is not dead is refused. Unknown ids are passed over.
    -- ids: not null
    -- returns: affected
    -- errors: PB001, PB003
    -- locks: message
    -- role: operator
DECLARE
    back bigint[];
    back_first bigint;
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
    SELECT array_agg(gone.id), min(gone.id) INTO back, back_first FROM gone;
    IF EXISTS (
        SELECT FROM {{ box.message }} AS m WHERE m.id = ANY (ids) AND m.id <> ALL (coalesce(back, '{}'))
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'PB003', MESSAGE = 'ids: only dead messages can be replayed; give ids of dead_letters alone';
    END IF;
    IF back IS NOT NULL THEN
        {{ queue.touch() }};
        {{ queue.come_back("back_first") }};
{% if box_name == "outbox" %}
        IF EXISTS (SELECT FROM {{ db.join_member }}) THEN
            PERFORM {{ db._join_mark }}(back, 'failed');
        END IF;
{% endif %}
{% if kind == "inbox" %}
        -- In key order, like a batch enqueue that renews them.
        {{ queue.lock_in_key_order("back") }};
{% endif %}
        UPDATE {{ box.message }} AS m
        SET
            attempt = 0,
            due_at = NULL,
            expires_at = CASE WHEN m.expires_at > {{ db._now }}() THEN m.expires_at END
        WHERE m.id = ANY (back);
{% if kind == "inbox" %}
        -- One that was never enqueued is marked as being processed; there is nothing to hand out.
        INSERT INTO {{ box.seen }} (id, processing)
        SELECT m.id, true FROM {{ box.message }} AS m WHERE m.id = ANY (back) AND m.topic IS NULL;
        PERFORM {{ box._put_back }}(ARRAY(
            SELECT m.id FROM {{ box.message }} AS m WHERE m.id = ANY (back) AND m.topic IS NOT NULL
        ));
{% else %}
        PERFORM {{ box._put_back }}(back);
{% endif %}
    END IF;
    RETURN QUERY SELECT coalesce(cardinality(back), 0);
END;
$$;
