{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.already_processed }}(
    message_id text,
    source text,
    hash bytea DEFAULT NULL,
    OUT already_processed boolean,
    OUT hash_mismatch boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Whether this message is done. On first sight it is noted as Seen; of any number of callers at once one notes it.
    -- message_id: 1 to 255 characters
    -- source: 1 to 255 characters
    -- hash: kept if none is known; a different one sets hash_mismatch
    -- returns: already_processed, hash_mismatch
    -- errors: PB001
    -- locks: message
    -- role: producer
DECLARE
    now_at timestamptz;
    new_id bigint;
    old_id bigint;
    old_hash bytea;
BEGIN
    PERFORM {{ box._check_key }}(message_id, source);
    SELECT m.id, m.hash INTO old_id, old_hash
    FROM {{ box.message }} AS m
    WHERE m.source = $2 AND m.message_id = $1;

    IF old_id IS NULL THEN
        PERFORM pg_current_xact_id();
        now_at := {{ db._now }}();
        new_id := nextval({{ box._ids | literal }});
        INSERT INTO {{ box.message }}
            (id, first_seen_at, last_seen_at, attempt, priority, source, message_id, hash)
        VALUES (new_id, now_at, now_at, 0, 0, source, message_id, hash)
        ON CONFLICT ON CONSTRAINT {{ key.uq_message_key }} DO NOTHING;
        IF FOUND THEN
            INSERT INTO {{ box.seen }} (id, processing) VALUES (new_id, false);
            already_processed := false;
            hash_mismatch := false;
            RETURN;
        END IF;
        SELECT m.id, m.hash INTO old_id, old_hash
        FROM {{ box.message }} AS m
        WHERE m.source = $2 AND m.message_id = $1;
    END IF;

    hash_mismatch := coalesce(old_hash <> hash, false);
    already_processed := {{ queue.is_done("old_id") }};
    IF NOT already_processed THEN
        UPDATE {{ box.message }} AS m
        SET last_seen_at = {{ db._now }}(), hash = coalesce(m.hash, $3)
        WHERE m.id = old_id;
    END IF;
END;
$$;
