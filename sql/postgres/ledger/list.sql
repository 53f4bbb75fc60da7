CREATE OR REPLACE FUNCTION {{ db.ledger_list }}(
    OUT key text,
    prefix text DEFAULT NULL,
    INOUT status text DEFAULT NULL,
    "limit" integer DEFAULT 100,
    after text DEFAULT NULL,
    OUT attempts integer,
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
    OUT lease_until timestamptz,
    OUT handler text
)
RETURNS SETOF record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
    -- What the ledger knows of many keys, a page at a time, by key.
    -- A page of keys, or of those with a prefix, costs what it shows; one of a status also what it passes over.
    -- prefix: only keys that begin with this; null or empty for all
    -- status: Unknown (released), Acquired or Processed; null for all
    -- limit: from 1 to 10000
    -- after: the last key of the page before; it need not exist any more
    -- returns: key, status, attempts, first_seen_at, last_seen_at, lease_until, handler; by key
    -- errors: PB001
    -- locks: none
    -- role: viewer
DECLARE
    only_status CONSTANT text := status;
BEGIN
    IF status NOT IN ('Unknown', 'Acquired', 'Processed') THEN
        PERFORM {{ db._reject }}('status', 'must be Unknown, Acquired or Processed');
    ELSIF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    END IF;
    -- Planned for each call: the index serves a prefix that is known.
    RETURN QUERY
    SELECT l.key, l.state, l.attempts, l.first_seen_at, l.last_seen_at, l.lease_until, l.handler
    FROM {{ db.ledger }} AS l
    WHERE (after IS NULL OR l.key > after COLLATE "C")
        AND (prefix IS NULL OR starts_with(l.key, prefix COLLATE "C"))
        AND (only_status IS NULL OR l.state = only_status)
    ORDER BY l.key
    LIMIT "limit";
END;
$$;
