CREATE OR REPLACE FUNCTION {{ db.audit_list }}(
    OUT id bigint,
    OUT changed_at timestamptz,
    INOUT actor text DEFAULT NULL,
    INOUT action text DEFAULT NULL,
    OUT subject text,
    OUT affected bigint,
    OUT detail text,
    "limit" integer DEFAULT 100,
    before_id bigint DEFAULT NULL
)
RETURNS SETOF record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
    -- Changes that were noted, the latest first, a page at a time.
    -- actor: only this one's; null for all
    -- action: only this one; null for all
    -- limit: from 1 to 10000
    -- before_id: the last id of the page before
    -- returns: id, changed_at, actor, action, subject, affected, detail; highest id first
    -- errors: PB001
    -- locks: none
    -- role: operator
DECLARE
    only_actor CONSTANT text := actor;
    only_action CONSTANT text := action;
BEGIN
    IF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    END IF;
    -- Planned for each call: which index serves depends on which arguments are given.
    RETURN QUERY
    SELECT a.id, a.changed_at, a.actor, a.action, a.subject, a.affected, a.detail
    FROM {{ db.audit }} AS a
    WHERE (before_id IS NULL OR a.id < before_id)
        AND (only_actor IS NULL OR a.actor = only_actor)
        AND (only_action IS NULL OR a.action = only_action)
    ORDER BY a.id DESC
    LIMIT "limit";
END;
$$;
