CREATE OR REPLACE FUNCTION {{ db._join_cleanup }}(until_at timestamptz, batch_size integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Deletes up to batch_size joins that were over, and last changed, by this time, longest over first, with their
    -- steps and what the log has of them. Fewer if they have very many steps; skips locked ones.
    -- returns: none
    -- errors: none
    -- locks: join
    -- role: internal
DECLARE
    gone_ids uuid[];
BEGIN
    gone_ids := ARRAY(
        SELECT j.join_id
        FROM (
            SELECT c.join_id, sum(m.steps) OVER (ORDER BY c.finished_at, c.no) - m.steps AS steps_before
            FROM (
                SELECT f.join_id, f.no, f.finished_at
                FROM {{ db.join }} AS f
                WHERE f.finished_at <= until_at
                    AND f.last_updated_at <= until_at
                    AND NOT EXISTS (
                        SELECT FROM {{ db.join_tally }} AS t WHERE t.join_id = f.join_id AND t.created_at > until_at
                    )
                ORDER BY f.finished_at
                LIMIT batch_size
                FOR UPDATE OF f SKIP LOCKED
            ) AS c
            CROSS JOIN LATERAL (
                SELECT coalesce(max(jm.no), 0) AS steps FROM {{ db.join_member }} AS jm WHERE jm.join_id = c.join_id
            ) AS m
        ) AS j
        WHERE j.steps_before <= 10 * batch_size
    );
    IF gone_ids <> '{}' THEN
        DELETE FROM {{ db.join_member }} AS jm WHERE jm.join_id = ANY (gone_ids);
        DELETE FROM {{ db.join_tally }} AS t WHERE t.join_id = ANY (gone_ids);
        DELETE FROM {{ db.join }} AS j WHERE j.join_id = ANY (gone_ids);
    END IF;
END;
$$;
