CREATE OR REPLACE FUNCTION {{ box.mark_processing }}(message_id text, source text)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Notes that a message seen is being processed. Done and dead ones stay what they are.
    -- message_id: 1 to 255 characters
    -- source: 1 to 255 characters
    -- returns: affected; 1 if the message is Processing now
    -- errors: PB001
    -- locks: message
    -- role: producer
DECLARE
    found_id bigint;
BEGIN
    PERFORM {{ box._check_key }}(message_id, source);
    SELECT m.id INTO found_id
    FROM {{ box.message }} AS m
    WHERE m.source = $2 AND m.message_id = $1
    FOR UPDATE;
    IF found_id IS NULL
        OR EXISTS (
            SELECT FROM (
                SELECT n.id + n.span AS next_id FROM {{ box.done }} AS n
                WHERE n.id <= found_id AND n.id > found_id - 1000
                ORDER BY n.id DESC
                LIMIT 1
            ) AS run
            WHERE run.next_id > found_id
        )
        OR EXISTS (SELECT FROM {{ box.dead }} AS d WHERE d.id = found_id)
    THEN
        RETURN QUERY SELECT 0;
        RETURN;
    END IF;
    UPDATE {{ box.seen }} AS s SET processing = true WHERE s.id = found_id;
    UPDATE {{ box.message }} AS m SET last_seen_at = {{ db._now }}() WHERE m.id = found_id;
    RETURN QUERY SELECT 1;
END;
$$;
