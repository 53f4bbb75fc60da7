CREATE OR REPLACE FUNCTION {{ db.worker_report }}(
    owner_token uuid,
    boxes text[],
    topics text[],
    name text,
    host text,
    pid bigint,
    version text,
    threads integer
)
RETURNS TABLE (started_at timestamptz, seen_at timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- A worker says who it is: at its start, and then every so often, so that others see that it is still there.
    -- owner_token: what it claims by; not the nil uuid
    -- boxes: their names, 1 to 1000
    -- topics: those that it takes, up to 10000; null for all
    -- name: what it calls itself, 1 to 255 characters
    -- host: 1 to 255 characters
    -- pid: not below 0
    -- version: 1 to 64 characters
    -- threads: not below 1
    -- returns: started_at, seen_at; by the server's clock
    -- errors: PB001
    -- locks: none
    -- role: worker
DECLARE
    now_at CONSTANT timestamptz := {{ db._now }}();
BEGIN
    IF owner_token IS NULL OR owner_token = '00000000-0000-0000-0000-000000000000' THEN
        PERFORM {{ db._reject }}('owner_token', 'must not be null or the nil uuid');
    ELSIF cardinality(boxes) BETWEEN 1 AND 1000 IS NOT TRUE THEN
        PERFORM {{ db._reject }}('boxes', 'must have from 1 to 1000 names');
    ELSIF cardinality(topics) > 10000 THEN
        PERFORM {{ db._reject }}('topics', 'must have at most 10000 topics');
    ELSIF char_length(name) BETWEEN 1 AND 255 IS NOT TRUE THEN
        PERFORM {{ db._reject }}('name', 'must have from 1 to 255 characters');
    ELSIF char_length(host) BETWEEN 1 AND 255 IS NOT TRUE THEN
        PERFORM {{ db._reject }}('host', 'must have from 1 to 255 characters');
    ELSIF pid IS NULL OR pid < 0 THEN
        PERFORM {{ db._reject }}('pid', 'must not be null or below 0');
    ELSIF char_length(version) BETWEEN 1 AND 64 IS NOT TRUE THEN
        PERFORM {{ db._reject }}('version', 'must have from 1 to 64 characters');
    ELSIF threads IS NULL OR threads < 1 THEN
        PERFORM {{ db._reject }}('threads', 'must not be null or below 1');
    END IF;
    -- Only the worker itself writes its row; what never changes is not written again.
    RETURN QUERY
    UPDATE {{ db.worker }} AS w
    SET seen_at = now_at, topics = $3
    WHERE w.owner_token = $1
    RETURNING w.started_at, w.seen_at;
    IF NOT FOUND THEN
        RETURN QUERY
        INSERT INTO {{ db.worker }} AS w (
            owner_token, started_at, seen_at, boxes, topics, name, host, pid, version, threads
        )
        VALUES ($1, now_at, now_at, $2, $3, $4, $5, $6, $7, $8)
        RETURNING w.started_at, w.seen_at;
    END IF;
END;
$$;
