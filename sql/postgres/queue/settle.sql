{% import "macros/queue.sql" as queue with context %}
{% import "macros/claim.sql" as parts with context %}
CREATE OR REPLACE FUNCTION {{ box.settle }}(
    owner_token uuid,
    outcomes jsonb,
    claim_batch integer DEFAULT 0,
    lease_seconds integer DEFAULT 30,
    topics text[] DEFAULT NULL
)
RETURNS TABLE (
{{ parts.result() }}
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Settles a batch, each message its own way, and claims the next: a busy worker's one round trip a batch.
    -- All or nothing. The first record of an id counts; messages that this owner does not hold are passed over.
    -- owner_token: not the nil uuid
    -- outcomes: a JSON array of objects with id (or ids, an array of them), result (ack, abandon, retry, release or fail), error (needed to fail), delay_seconds and max_attempts, as those routines take them
    -- claim_batch: from 0 to 10000
    -- lease_seconds: from 1 to 86400
    -- topics: of the next claim; null for all
{% if kind == "inbox" %}
    -- returns: id, message_id, source, topic, payload, hash, group_id, priority, headers, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, locked_until
{% else %}
    -- returns: id, message_id, topic, payload, correlation_id, group_id, priority, headers, attempt, created_at, due_at, expires_at, last_error, locked_until
{% endif %}
    -- errors: PB001, PB003
    -- locks: group, lease, message
    -- role: worker
DECLARE
    good boolean;
    acked bigint[];
    others bigint[];
    listed boolean;
    part record;
    -- What the claim below is told: all that its transaction has written was this settlement.
    may_remember CONSTANT boolean := topics IS NOT NULL AND pg_current_xact_id_if_assigned() IS NULL;
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000'
        AND lease_seconds BETWEEN 1 AND 86400 AND claim_batch BETWEEN 0 AND 10000) IS NOT TRUE
    THEN
        IF claim_batch IS NULL OR claim_batch NOT BETWEEN 0 AND 10000 THEN
            PERFORM {{ db._reject }}('claim_batch', 'must be from 0 to 10000');
        END IF;
        PERFORM {{ db._check_owner }}(owner_token, lease_seconds, 1);
    END IF;
    IF outcomes IS NULL OR jsonb_typeof(outcomes) <> 'array' THEN
        PERFORM {{ db._reject }}('outcomes', 'must be a JSON array');
    END IF;

    BEGIN
        SELECT
            bool_and(coalesce(
                num_nonnulls(o.id, o.ids) = 1
                AND (o.ids IS NULL OR jsonb_typeof(o.ids) = 'array')
                AND o.result IN ('ack', 'abandon', 'retry', 'release', 'fail')
                AND (o.delay_seconds IS NULL OR (
                    o.delay_seconds <= 1000000000 AND (o.delay_seconds > 0 OR (o.delay_seconds = 0 AND o.result = 'release'))
                ))
                AND (o.max_attempts IS NULL OR o.max_attempts >= 0)
                AND (o.result <> 'fail' OR o.error IS NOT NULL),
                false)),
            array_agg(o.id) FILTER (WHERE o.result = 'ack' AND o.id IS NOT NULL),
            array_agg(o.id) FILTER (WHERE o.result <> 'ack' AND o.id IS NOT NULL),
            bool_or(o.ids IS NOT NULL)
        INTO good, acked, others, listed
        FROM jsonb_to_recordset(outcomes) AS o (
            id bigint, ids jsonb, result text, error text, delay_seconds double precision, max_attempts integer
        );
        IF good AND listed THEN
            FOR part IN
                SELECT o.result, o.ids
                FROM jsonb_to_recordset(outcomes) AS o (ids bigint[], result text)
                WHERE o.ids <> '{}'
            LOOP
                good := good AND array_ndims(part.ids) = 1 AND array_position(part.ids, NULL) IS NULL;
                IF part.result = 'ack' THEN
                    acked := acked || part.ids;
                ELSE
                    others := others || part.ids;
                END IF;
            END LOOP;
        END IF;
    EXCEPTION
        WHEN data_exception THEN
            good := false;
    END;
    IF NOT good THEN
        PERFORM {{ db._reject }}('outcomes', 'every record needs an id, or an array ids, and a result of ack, abandon, retry, release or fail; '
            || 'a fail needs an error; delay_seconds must be above 0, to release also 0, and at most 1000000000; '
            || 'max_attempts must not be negative');
    END IF;

    -- As in a claim; the one below comes after writes, too late to move the marks.
    IF claim_batch > 0 AND random() < 0.03 THEN
        PERFORM {{ box._tick }}();
    END IF;
    IF others IS NULL THEN
        IF acked IS NOT NULL THEN
            PERFORM {{ box.ack }}(owner_token, acked);
        END IF;
    ELSE
        -- Everything is locked in its order first; the parts below then find it so.
        PERFORM {{ box._lock_groups }}(owner_token, acked || others);
        PERFORM FROM {{ box.lease }} AS l
        WHERE l.id = ANY (acked || others) AND l.owner_token = $1
        ORDER BY l.id
        FOR UPDATE;
{% if kind == "inbox" %}
        -- In key order, like a batch enqueue that renews them.
        {{ queue.lock_in_key_order("ARRAY(
                SELECT l.id FROM " ~ box.lease ~ " AS l WHERE l.id = ANY (others) AND l.owner_token = $1
            )") }};
{% endif %}
        FOR part IN
            SELECT f.result, f.error, f.delay_seconds, f.max_attempts, array_agg(f.id) AS ids
            FROM (
                SELECT DISTINCT ON (i.id) i.id, o.result, o.error, o.delay_seconds, o.max_attempts
                FROM ROWS FROM (
                    jsonb_to_recordset(outcomes) AS (
                        id bigint, ids bigint[], result text, error text, delay_seconds double precision,
                        max_attempts integer
                    )
                ) WITH ORDINALITY AS o (id, ids, result, error, delay_seconds, max_attempts, ordinal)
                CROSS JOIN LATERAL unnest(coalesce(o.ids, ARRAY[o.id])) AS i (id)
                ORDER BY i.id, o.ordinal
            ) AS f
            GROUP BY f.result, f.error, f.delay_seconds, f.max_attempts
            ORDER BY f.result, f.error, f.delay_seconds, f.max_attempts
        LOOP
            CASE part.result
                WHEN 'ack' THEN PERFORM {{ box.ack }}(owner_token, part.ids);
                WHEN 'abandon' THEN PERFORM {{ box.retry }}(owner_token, part.ids, part.error, part.delay_seconds, 0);
                WHEN 'retry' THEN
                    PERFORM {{ box.retry }}(owner_token, part.ids, part.error, part.delay_seconds, part.max_attempts);
                WHEN 'release' THEN PERFORM {{ box.release }}(owner_token, part.ids, part.delay_seconds);
                WHEN 'fail' THEN PERFORM {{ box.fail }}(owner_token, part.ids, part.error);
            END CASE;
        END LOOP;
    END IF;

    IF claim_batch > 0 THEN
        IF may_remember THEN
            PERFORM set_config({{ queue.own_setting("settled") }}, coalesce(pg_current_xact_id_if_assigned()::text, ''), true);
        END IF;
        RETURN QUERY SELECT c.* FROM {{ box.claim }}(owner_token, lease_seconds, claim_batch, topics) AS c;
        IF may_remember THEN
            PERFORM set_config({{ queue.own_setting("settled") }}, '', true);
        END IF;
    END IF;
END;
$$;
