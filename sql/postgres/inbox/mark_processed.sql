{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.mark_processed }}(message_id text, source text)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Marks a message done by its key, whether it was only seen, waits, or is leased to somebody.
    -- message_id: 1 to 255 characters
    -- source: 1 to 255 characters
    -- returns: affected; 0 if it is unknown, done or dead, or just being claimed
    -- errors: PB001
    -- locks: group, lease, message
    -- role: producer
DECLARE
    taken_id bigint := {{ box._take_by_key }}(message_id, source);
    taken record;
BEGIN
    IF taken_id IS NULL THEN
        RETURN QUERY SELECT 0;
        RETURN;
    END IF;
    SELECT m.topic, m.group_id INTO taken FROM {{ box.message }} AS m WHERE m.id = taken_id;
    {{ queue.touch() }};
    INSERT INTO {{ box.done }} (id, processed_at, span) VALUES (taken_id, {{ db._now }}(), 1);
    IF taken.topic IS NOT NULL THEN
        INSERT INTO {{ box.tally }} (no, topic, done) VALUES (nextval({{ box._ids | literal }}), taken.topic, 1);
    END IF;
    IF taken.group_id IS NOT NULL THEN
        PERFORM {{ box._regroup }}(ARRAY[taken.group_id]);
    END IF;
    RETURN QUERY SELECT 1;
END;
$$;
