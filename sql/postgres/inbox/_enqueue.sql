CREATE OR REPLACE FUNCTION {{ box._enqueue }}(messages {{ box.message }}[])
RETURNS TABLE (id bigint, outcome text, hash_mismatch boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Writes checked messages whose ids were drawn in their order. Keys are taken in key order, whether they are new
    -- or exist, so that batches with the same keys wait for each other but never crosswise; all who wait for messages
    -- take them in that order, and before any other lock.
    -- returns: id, outcome, hash_mismatch; in the order of the ids drawn
    -- errors: none
    -- locks: group, message
    -- role: internal
DECLARE
    written bigint[];
    keys text[];
    newest bigint[];
    replaced text[] := '{}';
    repeat record;
    ids bigint[] := '{}';
    drawn bigint[] := '{}';
    outcomes text[] := '{}';
    mismatches boolean[] := '{}';
BEGIN
    WITH entered AS (
        INSERT INTO {{ box.message }} AS m
        SELECT DISTINCT ON (n.source, n.message_id) n.*
        FROM unnest(messages) AS n
        ORDER BY n.source, n.message_id, n.id
        -- Changes nothing, but locks what exists: were it cleaned up now, its key would have to be taken out of order.
        ON CONFLICT ON CONSTRAINT {{ key.uq_message_key }} DO UPDATE SET attempt = m.attempt WHERE false
        RETURNING m.id
    )
    SELECT coalesce(array_agg(entered.id), '{}') INTO written FROM entered;

    SELECT array_agg(k.collapse_key), array_agg(k.id) INTO keys, newest
    FROM (
        SELECT n.collapse_key, max(n.id) AS id
        FROM unnest(messages) AS n
        WHERE n.collapse_key IS NOT NULL AND n.id = ANY (written)
        GROUP BY n.collapse_key
        ORDER BY n.collapse_key
    ) AS k;
    PERFORM {{ box._admit }}(ARRAY(
        SELECT n.id
        FROM unnest(messages) AS n
        WHERE n.id = ANY (written)
            AND (n.collapse_key IS NULL OR n.id = ANY (newest))
    ));
    IF keys IS NOT NULL THEN
        -- Of several with one key in this batch only the newest was placed; the others are gone before they were seen.
        replaced := {{ box._replace }}(keys, newest);
        WITH gone AS (
            DELETE FROM {{ box.message }} AS m
            USING unnest(messages) AS n
            WHERE m.id = n.id
                AND n.collapse_key IS NOT NULL
                AND n.id = ANY (written)
                AND n.id <> ALL (newest)
            RETURNING m.collapse_key
        )
        SELECT replaced || coalesce(array_agg(gone.collapse_key), '{}') INTO replaced FROM gone;
    END IF;

    IF cardinality(written) < cardinality(messages) THEN
        FOR repeat IN
            SELECT n.id AS drawn_id, u.id, u.outcome, u.hash_mismatch
            FROM (
                SELECT o.*
                FROM unnest(messages) AS o
                WHERE o.id <> ALL (written)
                ORDER BY o.source, o.message_id, o.id
            ) AS n
            CROSS JOIN LATERAL {{ box._renew }}(n::{{ box.message }}) AS u
        LOOP
            drawn := drawn || repeat.drawn_id;
            ids := ids || repeat.id;
            outcomes := outcomes || repeat.outcome;
            mismatches := mismatches || repeat.hash_mismatch;
        END LOOP;
    END IF;

    RETURN QUERY
    SELECT
        coalesce(u.id, n.id),
        coalesce(u.outcome, CASE
            WHEN n.collapse_key = ANY (replaced) AND n.id = ANY (newest) THEN 'collapsed'
            ELSE 'created'
        END),
        coalesce(u.hash_mismatch, false)
    FROM unnest(messages) AS n
    LEFT JOIN unnest(drawn, ids, outcomes, mismatches) AS u (drawn_id, id, outcome, hash_mismatch)
        ON u.drawn_id = n.id
    ORDER BY n.id;
END;
$$;
