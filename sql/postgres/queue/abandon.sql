{% import "macros/queue.sql" as queue with context %}
{% import "macros/texts.sql" as texts with context %}
CREATE OR REPLACE FUNCTION {{ box.abandon }}(
    owner_token uuid,
    ids bigint[],
    last_error text DEFAULT NULL,
    delay_seconds double precision DEFAULT NULL
)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Gives messages back for another try: one attempt counted, claimable again after the delay or the backoff,
    -- behind what was claimable before. Touches only what this owner holds. Does not look at max_attempts.
    -- owner_token: not the nil uuid
    -- ids: not null
    -- last_error: recorded unless null or empty, up to 16384 characters
    -- delay_seconds: above 0, at most 1000000000; null for the backoff, min(backoff_base * 2^attempt, backoff_cap)
    -- returns: affected
    -- errors: PB001
    -- locks: group, lease, message
    -- role: worker
DECLARE
    new_error CONSTANT text := {{ texts.cut("last_error") }};
    now_at timestamptz;
    base double precision;
    cap double precision;
    gone_ids bigint[];
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000' AND ids IS NOT NULL) IS NOT TRUE THEN
        PERFORM {{ db._check_settling }}(owner_token, ids);
    END IF;
    IF delay_seconds <= 0 OR delay_seconds > 1000000000 OR delay_seconds = 'NaN' THEN
        PERFORM {{ db._reject }}('delay_seconds', 'must be above 0 and at most 1000000000');
    END IF;
    PERFORM {{ box._lock_groups }}(owner_token, ids);

    WITH gone AS (
        DELETE FROM {{ box.lease }} AS l
        WHERE l.id = ANY (ids) AND l.owner_token = $1
        RETURNING l.id
    )
    SELECT array_agg(gone.id) INTO gone_ids FROM gone;

    IF gone_ids IS NOT NULL THEN
{% if kind == "inbox" %}
        -- In key order, like a batch enqueue that renews them.
        PERFORM FROM {{ box.message }} AS m WHERE m.id = ANY (gone_ids) ORDER BY m.source, m.message_id FOR UPDATE;
{% endif %}
        IF delay_seconds IS NULL THEN
            SELECT max(s.value) FILTER (WHERE s.name = 'backoff_base_seconds'), max(s.value) FILTER (WHERE s.name = 'backoff_cap_seconds')
            INTO base, cap
            FROM {{ box.settings }} AS s;
        END IF;
        {{ queue.touch() }};
        now_at := {{ db._now }}();
        UPDATE {{ box.message }} AS m
        SET
            attempt = m.attempt + 1,
            due_at = now_at + make_interval(secs => coalesce(delay_seconds, least(base * power(2, least(m.attempt + 1, 64)), cap))),
            last_error = coalesce(nullif(new_error, ''), m.last_error)
        WHERE m.id = ANY (gone_ids);
        PERFORM {{ box._put_back }}(gone_ids);
    END IF;
    RETURN QUERY SELECT coalesce(cardinality(gone_ids), 0);
END;
$$;
