CREATE OR REPLACE FUNCTION {{ box.workers }}("limit" integer DEFAULT 100)
RETURNS TABLE (
    owner_token uuid,
    in_flight bigint,
    locked_until timestamptz,
    done_lately bigint,
    last_done_at timestamptz,
    name text,
    host text,
    pid bigint,
    version text,
    threads integer,
    topics text[],
    started_at timestamptz,
    seen_at timestamptz
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Who works here: whoever holds a lease, or was among those that settled last, within five minutes.
    -- With who it is, where it has said so within a day; one that only has said so within ten minutes works here as well.
    -- The cost is that of what is leased, of the 1000 batches that were done last and of the 1000 workers seen last.
    -- limit: from 1 to 10000
    -- returns: owner_token, in_flight, locked_until, done_lately, last_done_at, name, host, pid, version, threads, topics, started_at, seen_at; most in flight first, then who was done last, then by owner_token; locked_until is when the first of its leases ends
    -- errors: PB001
    -- locks: none
    -- role: viewer
DECLARE
    now_at CONSTANT timestamptz := {{ db._now }}();
BEGIN
    IF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    END IF;
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT l.owner_token, count(*) AS messages, min(l.locked_until) AS locked_until
        FROM {{ box.lease }} AS l
        GROUP BY l.owner_token
    ),
    settled AS MATERIALIZED (
        SELECT n.processed_by, sum(n.span)::bigint AS messages, max(n.processed_at) AS last_at
        FROM (
            SELECT x.processed_by, x.processed_at, x.span
            FROM {{ box.done }} AS x
            WHERE x.processed_at > now_at - interval '5 minutes'
            ORDER BY x.processed_at DESC
            LIMIT 1000
        ) AS n
        WHERE n.processed_by IS NOT NULL
        GROUP BY n.processed_by
    ),
    known AS MATERIALIZED (
        SELECT w.*
        FROM {{ db.worker }} AS w
        WHERE w.seen_at > now_at - interval '1 day'
        ORDER BY w.seen_at DESC
        LIMIT 1000
    ),
    here AS MATERIALIZED (
        SELECT held.owner_token FROM held
        UNION
        SELECT settled.processed_by FROM settled
        UNION
        SELECT known.owner_token
        FROM known
        WHERE known.seen_at > now_at - interval '10 minutes' AND {{ box_name | literal }} = ANY (known.boxes)
    )
    SELECT
        here.owner_token, coalesce(held.messages, 0), held.locked_until, coalesce(settled.messages, 0), settled.last_at,
        known.name, known.host, known.pid, known.version, known.threads, known.topics, known.started_at, known.seen_at
    FROM here
    LEFT JOIN held ON held.owner_token = here.owner_token
    LEFT JOIN settled ON settled.processed_by = here.owner_token
    LEFT JOIN known ON known.owner_token = here.owner_token
    ORDER BY 2 DESC, 5 DESC NULLS LAST, 1
    LIMIT "limit";
END;
$$;
