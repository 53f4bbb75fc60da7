CREATE OR REPLACE FUNCTION {{ db.ledger_try_begin }}(
    key text,
    owner text DEFAULT NULL,
    lease_seconds integer DEFAULT NULL,
    handler text DEFAULT NULL
)
RETURNS TABLE (status text, lease_id uuid, expires_at timestamptz, attempts integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Asks to work on a key. Of any number of concurrent callers exactly one acquires it: a new key, one that was
    -- released, or one whose lease has run out. Everybody else hears Processed or Busy, and nothing is written.
    -- A caller whose transaction is open holds up the others that ask for the same new or free key, until it ends.
    -- key: 1 to 512 characters
    -- owner: up to 255 characters
    -- lease_seconds: from 1 to 86400; null never runs out (mark before handling)
    -- handler: up to 255 characters
    -- returns: status, lease_id, expires_at, attempts; status is Acquired, Processed or Busy (then expires_at is the holder's)
    -- errors: PB001
    -- locks: message
    -- role: worker
DECLARE
    now_at timestamptz;
    until_at timestamptz;
    new_lease CONSTANT uuid := gen_random_uuid();
    known {{ db.ledger }};
BEGIN
    PERFORM {{ db._ledger_check }}(key);
    IF length(owner) > 255 THEN
        PERFORM {{ db._reject }}('owner', 'must not be longer than 255 characters');
    ELSIF lease_seconds NOT BETWEEN 1 AND 86400 THEN
        PERFORM {{ db._reject }}('lease_seconds', 'must be from 1 to 86400, or null');
    ELSIF length(handler) > 255 THEN
        PERFORM {{ db._reject }}('handler', 'must not be longer than 255 characters');
    END IF;

    LOOP
        now_at := {{ db._now }}();
        SELECT l.* INTO known FROM {{ db.ledger }} AS l WHERE l.key = $1;
        IF known.key IS NULL THEN
            until_at := now_at + make_interval(secs => lease_seconds);
            INSERT INTO {{ db.ledger }} (
                key, state, lease_id, owner, lease_until, attempts, handler, first_seen_at, last_seen_at
            )
            VALUES ($1, 'Acquired', new_lease, $2, until_at, 1, $4, now_at, now_at)
            ON CONFLICT ON CONSTRAINT {{ key.pk_ledger }} DO NOTHING;
            IF FOUND THEN
                -- It may have waited for another insert that was rolled back; then the lease begins only now.
                IF {{ db._now }}() > now_at + interval '0.5 seconds' THEN
                    now_at := {{ db._now }}();
                    until_at := now_at + make_interval(secs => lease_seconds);
                    UPDATE {{ db.ledger }} AS l
                    SET lease_until = until_at, first_seen_at = now_at, last_seen_at = now_at
                    WHERE l.key = $1;
                END IF;
                RETURN QUERY SELECT 'Acquired', new_lease, until_at, 1;
                RETURN;
            END IF;
            CONTINUE;
        END IF;

        IF known.state = 'Unknown' OR known.lease_until <= now_at THEN
            -- What is decided is decided under the lock, by what is there then.
            SELECT l.* INTO known FROM {{ db.ledger }} AS l WHERE l.key = $1 FOR UPDATE;
            CONTINUE WHEN known.key IS NULL;
            now_at := {{ db._now }}();
            IF known.state = 'Unknown' OR known.lease_until <= now_at THEN
                until_at := now_at + make_interval(secs => lease_seconds);
                UPDATE {{ db.ledger }} AS l
                SET
                    state = 'Acquired',
                    lease_id = new_lease,
                    owner = $2,
                    lease_until = until_at,
                    attempts = l.attempts + 1,
                    handler = $4,
                    last_seen_at = now_at
                WHERE l.key = $1;
                RETURN QUERY SELECT 'Acquired', new_lease, until_at, known.attempts + 1;
                RETURN;
            END IF;
        END IF;
        RETURN QUERY
        SELECT
            CASE known.state WHEN 'Processed' THEN 'Processed' ELSE 'Busy' END, NULL::uuid, known.lease_until,
            known.attempts;
        RETURN;
    END LOOP;
END;
$$;
