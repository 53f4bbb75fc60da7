CREATE OR REPLACE FUNCTION {{ box._enqueue }}(messages {{ box.message }}[])
RETURNS TABLE (id bigint, message_id uuid, outcome text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Writes checked messages whose ids were drawn in their order: deduplicated, collapsed, placed. Keys are taken
    -- in key order, so that two batches with the same keys wait for each other but never crosswise.
    -- returns: id, message_id, outcome; in id order
    -- errors: none
    -- locks: group, message
    -- role: internal
#variable_conflict use_column
DECLARE
    now_at timestamptz := {{ db._now }}();
    window_seconds double precision;
    repeated bigint[] := '{}';
    written bigint[];
    keys text[];
    newest bigint[];
    replaced text[] := '{}';
    message {{ box.message }};
BEGIN
    IF cardinality(messages) > 1 AND EXISTS (
        SELECT FROM unnest(messages) AS n WHERE n.collapse_key IS NOT NULL GROUP BY n.message_id HAVING count(*) > 1
    ) THEN
        -- Whether the second of a message_id is a duplicate depends on whether a record between has replaced the first.
        FOREACH message IN ARRAY messages LOOP
            RETURN QUERY SELECT e.* FROM {{ box._enqueue }}(ARRAY[message]) AS e;
        END LOOP;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM unnest(messages) AS n WHERE n.dedup_key IS NOT NULL) THEN
        SELECT s.value::double precision INTO window_seconds
        FROM {{ box.settings }} AS s
        WHERE s.name = 'dedup_window_seconds';
        IF window_seconds > 0 THEN
            WITH entered AS (
                INSERT INTO {{ box.dedup }} AS d (dedup_key, id, message_id, seen_at)
                SELECT DISTINCT ON (n.dedup_key) n.dedup_key, n.id, n.message_id, now_at
                FROM unnest(messages) AS n
                WHERE n.dedup_key IS NOT NULL
                ORDER BY n.dedup_key, n.id
                ON CONFLICT ON CONSTRAINT {{ key.pk_dedup }} DO UPDATE
                SET id = excluded.id, message_id = excluded.message_id, seen_at = excluded.seen_at
                WHERE d.seen_at <= now_at - make_interval(secs => window_seconds)
                RETURNING d.id
            )
            SELECT coalesce(array_agg(n.id), '{}') INTO repeated
            FROM unnest(messages) AS n
            WHERE n.dedup_key IS NOT NULL
                AND n.id NOT IN (SELECT entered.id FROM entered);
        END IF;
    END IF;

    -- A given message_id may be one that was drawn here for an earlier message; those are not in the index.
    WITH entered AS (
        INSERT INTO {{ box.message }} AS m
        SELECT n.*
        FROM unnest(messages) AS n
        WHERE n.id <> ALL (repeated)
            AND (n.is_given IS NULL OR NOT EXISTS (
                SELECT FROM {{ box.message }} AS d
                WHERE d.id = {{ "n.message_id" | drawn_id }} AND d.message_id = n.message_id
                OFFSET 0
            ))
        ORDER BY n.message_id, n.id
        ON CONFLICT (message_id) WHERE is_given DO NOTHING
        RETURNING m.id
    )
    SELECT coalesce(array_agg(entered.id), '{}') INTO written FROM entered;

    IF cardinality(written) + cardinality(repeated) < cardinality(messages) THEN
        -- A key entered above for a message that turned out to exist already stands for the existing one.
        UPDATE {{ box.dedup }} AS d
        SET id = m.id
        FROM unnest(messages) AS n
        CROSS JOIN LATERAL (
            SELECT g.id FROM {{ box.message }} AS g
            WHERE n.id <> ALL (written) AND n.is_given AND g.message_id = n.message_id AND g.is_given
            UNION ALL
            SELECT d.id FROM {{ box.message }} AS d
            WHERE n.id <> ALL (written) AND n.is_given AND d.message_id = n.message_id AND d.id = {{ "n.message_id" | drawn_id }}
            LIMIT 1
        ) AS m
        WHERE n.id <> ALL (written)
            AND n.id <> ALL (repeated)
            AND d.dedup_key = n.dedup_key
            AND d.id = n.id;
    END IF;

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

    RETURN QUERY
    SELECT
        coalesce(d.id, m.id, n.id),
        coalesce(d.message_id, n.message_id),
        CASE
            WHEN n.id <> ALL (written) THEN 'duplicate'
            WHEN n.collapse_key = ANY (replaced) AND n.id = ANY (newest) THEN 'collapsed'
            ELSE 'created'
        END
    FROM unnest(messages) AS n
    LEFT JOIN {{ box.dedup }} AS d ON n.id = ANY (repeated) AND d.dedup_key = n.dedup_key
    LEFT JOIN LATERAL (
        SELECT g.id FROM {{ box.message }} AS g
        WHERE n.id <> ALL (written) AND n.is_given AND g.message_id = n.message_id AND g.is_given
        UNION ALL
        SELECT d.id FROM {{ box.message }} AS d
        WHERE n.id <> ALL (written) AND n.is_given AND d.message_id = n.message_id AND d.id = {{ "n.message_id" | drawn_id }}
        LIMIT 1
    ) AS m ON n.id <> ALL (repeated)
    ORDER BY n.id;
END;
$$;
