{% import "macros/queue.sql" as queue with context %}
{% import "macros/texts.sql" as texts with context %}
CREATE OR REPLACE FUNCTION {{ box.retry }}(
    owner_token uuid,
    ids bigint[],
    last_error text DEFAULT NULL,
    delay_seconds double precision DEFAULT NULL,
    max_attempts integer DEFAULT NULL
)
RETURNS TABLE (affected integer, dead integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Gives messages back for another try, as abandon does, but those whose attempts thereby reach max_attempts are
    -- dead. So the decision is the database's, also for a caller that may not read the box's settings.
    -- owner_token: not the nil uuid
    -- ids: not null
    -- last_error: recorded unless null or empty, up to 16384 characters
    -- delay_seconds: above 0, at most 1000000000; null for the backoff, min(backoff_base * 2^attempt, backoff_cap)
    -- max_attempts: from 0, which is no limit; null for the box's setting
    -- returns: affected, dead; affected counts the dead too
    -- errors: PB001
    -- locks: group, lease, message
    -- role: worker
DECLARE
    new_error CONSTANT text := {{ texts.cut("last_error") }};
    limit_attempts integer := max_attempts;
    now_at timestamptz;
    base double precision;
    cap double precision;
    groups text[];
    gone_ids bigint[];
    dying bigint[];
    waiting bigint[];
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000' AND ids IS NOT NULL) IS NOT TRUE THEN
        PERFORM {{ db._check_settling }}(owner_token, ids);
    END IF;
    IF delay_seconds <= 0 OR delay_seconds > 1000000000 OR delay_seconds = 'NaN' THEN
        PERFORM {{ db._reject }}('delay_seconds', 'must be above 0 and at most 1000000000');
    ELSIF max_attempts < 0 THEN
        PERFORM {{ db._reject }}('max_attempts', 'must not be negative');
    END IF;
    groups := {{ box._lock_groups }}(owner_token, ids);

    WITH gone AS (
        DELETE FROM {{ box.lease }} AS l
        WHERE l.id = ANY (ids) AND l.owner_token = $1
        RETURNING l.id
    )
    SELECT array_agg(gone.id) INTO gone_ids FROM gone;

    IF gone_ids IS NOT NULL THEN
{% if kind == "inbox" %}
        -- In key order, like a batch enqueue that renews them.
        {{ queue.lock_in_key_order("gone_ids") }};
{% endif %}
        IF delay_seconds IS NULL OR max_attempts IS NULL THEN
            SELECT
                (max(s.value) FILTER (WHERE s.name = 'backoff_base_seconds'))::double precision,
                (max(s.value) FILTER (WHERE s.name = 'backoff_cap_seconds'))::double precision,
                coalesce(limit_attempts, (max(s.value) FILTER (WHERE s.name = 'max_attempts'))::integer)
            INTO base, cap, limit_attempts
            FROM {{ box.settings }} AS s;
        END IF;
        {{ queue.touch() }};
        now_at := {{ db._now }}();
        WITH tried AS (
            UPDATE {{ box.message }} AS m
            SET
                attempt = m.attempt + 1,
                due_at = CASE
                    WHEN limit_attempts > 0 AND m.attempt + 1 >= limit_attempts THEN m.due_at
                    ELSE now_at + make_interval(secs => coalesce(delay_seconds, least(base * power(2, least(m.attempt + 1, 64)), cap)))
                END,
                last_error = coalesce(nullif(new_error, ''), m.last_error)
            WHERE m.id = ANY (gone_ids)
            RETURNING m.id, (limit_attempts > 0 AND m.attempt >= limit_attempts) IS TRUE AS is_dying
        )
        SELECT
            array_agg(tried.id) FILTER (WHERE tried.is_dying),
            array_agg(tried.id) FILTER (WHERE NOT tried.is_dying)
        INTO dying, waiting
        FROM tried;

        IF dying IS NOT NULL THEN
            PERFORM {{ box._bury }}(dying, NULL, false);
        END IF;
        IF waiting IS NOT NULL THEN
            PERFORM {{ box._put_back }}(waiting);
        END IF;
        IF dying IS NOT NULL AND groups <> '{}' THEN
            -- Putting members back gave their groups a ticket already.
            PERFORM {{ box._regroup }}(ARRAY(
                SELECT m.group_id FROM {{ box.message }} AS m WHERE m.id = ANY (dying) AND m.group_id IS NOT NULL
                EXCEPT
                SELECT m.group_id FROM {{ box.message }} AS m WHERE m.id = ANY (waiting)
            ));
        END IF;
    END IF;
    RETURN QUERY SELECT coalesce(cardinality(gone_ids), 0), coalesce(cardinality(dying), 0);
END;
$$;
