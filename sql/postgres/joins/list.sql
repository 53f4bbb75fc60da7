CREATE OR REPLACE FUNCTION {{ db.join_list }}(
    OUT join_id uuid,
    INOUT tenant_id text DEFAULT NULL,
    OUT expected_steps integer,
    OUT completed_steps integer,
    OUT failed_steps integer,
    INOUT status text DEFAULT NULL,
    "limit" integer DEFAULT 100,
    after uuid DEFAULT NULL,
    older_than_seconds double precision DEFAULT NULL,
    OUT metadata text,
    OUT created_at timestamptz,
    OUT last_updated_at timestamptz
)
RETURNS SETOF record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
    -- Joins with their counters, a page at a time.
    -- tenant_id: only this one's; null for all
    -- status: Pending, Completed, Failed or Cancelled; null for all
    -- limit: from 1 to 10000
    -- after: the last join of the page before
    -- older_than_seconds: from 0 to 1000000000; only joins begun longer ago: those that may be stuck
    -- returns: join_id, tenant_id, expected_steps, completed_steps, failed_steps, status, metadata, created_at, last_updated_at; oldest first
    -- errors: PB001, PB002
    -- locks: none
    -- role: viewer
DECLARE
    only_tenant CONSTANT text := tenant_id;
    only_status CONSTANT text := status;
    until_at timestamptz;
    after_no bigint := 0::bigint;
BEGIN
    IF status NOT IN ('Pending', 'Completed', 'Failed', 'Cancelled') THEN
        PERFORM {{ db._reject }}('status', 'must be Pending, Completed, Failed or Cancelled');
    ELSIF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    ELSIF older_than_seconds NOT BETWEEN 0 AND 1000000000 THEN
        PERFORM {{ db._reject }}('older_than_seconds', 'must be from 0 to 1000000000');
    END IF;
    until_at := {{ db._now }}() - make_interval(secs => older_than_seconds);
    IF after IS NOT NULL THEN
        SELECT j.no INTO after_no FROM {{ db.join }} AS j WHERE j.join_id = after;
        IF after_no IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'PB002', MESSAGE = 'after: no such join; it must be a join_id of the page before';
        END IF;
    END IF;
    -- Planned for each call: which index serves depends on which arguments are given.
    RETURN QUERY
    SELECT
        v.join_id, v.tenant_id, v.expected_steps, v.completed_steps, v.failed_steps, v.status, v.metadata, v.created_at,
        v.last_updated_at
    FROM (
        SELECT j.no, j.join_id
        FROM {{ db.join }} AS j
        WHERE j.no > after_no
            AND (only_tenant IS NULL OR j.tenant_id = only_tenant)
            AND (only_status IS NULL OR j.status = only_status)
            AND (until_at IS NULL OR j.created_at < until_at)
        ORDER BY j.no
        LIMIT "limit"
    ) AS page
    CROSS JOIN LATERAL (
        SELECT w.* FROM {{ db.outbox_joins }} AS w WHERE w.join_id = page.join_id OFFSET 0
    ) AS v
    ORDER BY page.no;
END;
$$;

CREATE OR REPLACE FUNCTION {{ db.join_list }}(
    OUT join_id uuid,
    INOUT tenant_id bigint,
    OUT expected_steps integer,
    OUT completed_steps integer,
    OUT failed_steps integer,
    INOUT status text DEFAULT NULL,
    "limit" integer DEFAULT 100,
    after uuid DEFAULT NULL,
    older_than_seconds double precision DEFAULT NULL,
    OUT metadata text,
    OUT created_at timestamptz,
    OUT last_updated_at timestamptz
)
RETURNS SETOF record
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Joins with their counters, a page at a time.
    -- For callers whose tenants have numbers: other joins of such a tenant have it as text.
    -- tenant_id: only this one's
    -- status: Pending, Completed, Failed or Cancelled; null for all
    -- limit: from 1 to 10000
    -- after: the last join of the page before
    -- older_than_seconds: from 0 to 1000000000; only joins begun longer ago: those that may be stuck
    -- returns: join_id, tenant_id, expected_steps, completed_steps, failed_steps, status, metadata, created_at, last_updated_at; oldest first
    -- errors: PB001, PB002
    -- locks: none
    -- role: viewer
    SELECT
        p.join_id, $1, p.expected_steps, p.completed_steps, p.failed_steps, p.status, p.metadata, p.created_at,
        p.last_updated_at
    FROM {{ db.join_list }}($1::text, $2, $3, $4, $5) AS p;
$$;
