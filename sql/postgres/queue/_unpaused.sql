CREATE OR REPLACE FUNCTION {{ box._unpaused }}(topics text[], paused text[])
RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
    -- The topics to hand out while some are paused: those asked for, or all that have something ready, less the
    -- paused ones. Hops from topic to topic along the index, so its cost is the number of topics.
    -- returns: text[]
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    found text[];
BEGIN
    IF topics IS NULL THEN
        WITH RECURSIVE hop (topic) AS (
            (SELECT r.topic FROM {{ box.ready }} AS r ORDER BY r.topic, r.lane, r.ticket LIMIT 1)
            UNION ALL
            SELECT (
                SELECT r.topic
                FROM {{ box.ready }} AS r
                WHERE r.topic > hop.topic
                ORDER BY r.topic, r.lane, r.ticket
                LIMIT 1
            )
            FROM hop
            WHERE hop.topic IS NOT NULL
        )
        SELECT array_agg(hop.topic) INTO found FROM hop WHERE hop.topic IS NOT NULL;
    ELSE
        found := topics;
    END IF;
    RETURN ARRAY(SELECT u.topic FROM unnest(found) AS u (topic) WHERE u.topic <> ALL (paused));
END;
$$;
