{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.cancel }}(ids bigint[], reason text DEFAULT NULL)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Calls messages off that are not over yet, whether they wait, for a time or in a group, or are leased: they are
    -- Cancelled, a failed step of their joins, and stay with the dead ones until a replay or a discard. The owner of a
    -- leased one has lost its lease. Whoever comes first to a message decides; one that somebody else is just moving is
    -- waited for. All others, and repeated ids, are passed over, and in an inbox what was never enqueued.
    -- ids: not null
    -- reason: kept as last_error unless null or empty, up to 16384 characters
    -- returns: affected
    -- errors: PB001
    -- locks: group, lease, message
    -- role: operator
DECLARE
    taken bigint[];
    groups text[];
BEGIN
    IF ids IS NULL THEN
        PERFORM {{ db._reject }}('ids', 'must not be null');
    END IF;
    taken := {{ box._take }}(ARRAY(SELECT DISTINCT u.id FROM unnest(ids) AS u (id) WHERE u.id IS NOT NULL));
    IF taken <> '{}' THEN
{% if kind == "inbox" %}
        -- In key order, like a batch enqueue that renews them.
        {{ queue.lock_in_key_order("taken") }};
{% endif %}
        PERFORM {{ box._bury }}(taken, nullif(reason, ''), false, true);
        groups := ARRAY(
            SELECT DISTINCT m.group_id FROM {{ box.message }} AS m WHERE m.id = ANY (taken) AND m.group_id IS NOT NULL
        );
        PERFORM {{ box._regroup }}(groups);
    END IF;
    RETURN QUERY SELECT cardinality(taken);
END;
$$;
