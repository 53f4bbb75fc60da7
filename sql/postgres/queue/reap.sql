{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.reap }}(batch_size integer DEFAULT 1000)
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Brings back messages whose lease has run out: claimable at once, with one attempt counted, or dead once their
    -- attempts reach max_attempts. Skips what others have locked.
    -- batch_size: from 1 to 10000
    -- returns: affected
    -- errors: PB001
    -- locks: group, lease, message
    -- role: worker
BEGIN
    IF batch_size IS NULL OR batch_size NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('batch_size', 'must be from 1 to 10000');
    END IF;
    {{ queue.arrive() }};
    PERFORM {{ box._tick }}(true);
    PERFORM {{ box._patrol }}(2000);
    {{ queue.note_upkeep(box._reaped) }};
    RETURN QUERY SELECT {{ box._reap }}(batch_size);
END;
$$;
