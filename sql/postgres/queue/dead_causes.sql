{% import "macros/causes.sql" as causes with context %}
CREATE OR REPLACE FUNCTION {{ box.dead_causes }}("limit" integer DEFAULT 100)
RETURNS TABLE (
    topic text,
    cause text,
    messages bigint,
    oldest_died_at timestamptz,
    newest_died_at timestamptz,
    sample_id bigint
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Dead, expired and cancelled messages by topic and cause. The cause is the first line of the error or the reason, in
    -- which numbers, ids, hex, quoted text, paths and addresses are replaced, so that one fault is one row: # for what has
    -- digits, ? for what was quoted, <path>, <address>. Without an error it is the status.
    -- The 5000 that died last are read. If there are more, a last row says so: without topic, messages and sample_id,
    -- newest_died_at being when the next of them died.
    -- limit: from 1 to 10000
    -- returns: topic, cause, messages, oldest_died_at, newest_died_at, sample_id; most messages first
    -- errors: PB001
    -- locks: none
    -- role: viewer
DECLARE
    more_at timestamptz;
BEGIN
    IF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    END IF;
    SELECT d.died_at INTO more_at FROM {{ box.dead }} AS d ORDER BY d.died_at DESC OFFSET 5000 LIMIT 1;
    RETURN QUERY
    -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
    WITH letter AS MATERIALIZED (
        SELECT
            d.topic, d.id, d.died_at,
            coalesce(
                nullif(m.line, ''),
                CASE WHEN d.expired THEN 'Expired' WHEN d.cancelled THEN 'Cancelled' ELSE '{{ "Dead" if kind == "inbox" else "Failed" }}' END
            ) AS line
        FROM (
            SELECT e.id, e.died_at, e.expired, e.cancelled, e.topic
            FROM {{ box.dead }} AS e
            ORDER BY e.died_at DESC
            LIMIT 5000
        ) AS d
        CROSS JOIN LATERAL (
            SELECT
                {{ causes.normal("w.last_error") }} AS line
            FROM {{ box.message }} AS w
            WHERE w.id = d.id
            OFFSET 0
        ) AS m
    ),
    -- Once for each line: those that differ in their digits only are one by now.
    line AS MATERIALIZED (
        SELECT
            letter.topic, letter.line, count(*) AS messages, min(letter.died_at) AS oldest_died_at,
            max(letter.died_at) AS newest_died_at, max(letter.id) AS sample_id
        FROM letter
        GROUP BY letter.topic, letter.line
    ),
    known AS (
        SELECT
            line.*,
            {{ causes.folded("u.line") }} AS cause
        FROM line
        CROSS JOIN LATERAL (
            SELECT
                {{ causes.located(causes.unquoted("line.line")) }} AS line
            OFFSET 0
        ) AS u
    ),
    best AS (
        SELECT
            known.topic, known.cause, sum(known.messages)::bigint AS messages, min(known.oldest_died_at) AS oldest_died_at,
            max(known.newest_died_at) AS newest_died_at, max(known.sample_id) AS sample_id
        FROM known
        GROUP BY known.topic, known.cause
        ORDER BY 3 DESC, 5 DESC, 6 DESC
        LIMIT "limit"
    )
    SELECT a.* FROM (
        SELECT best.* FROM best
        UNION ALL
        SELECT NULL, 'older ones, not looked at', NULL, NULL, more_at, NULL WHERE more_at IS NOT NULL
    ) AS a
    ORDER BY a.sample_id IS NULL, a.messages DESC, a.newest_died_at DESC, a.sample_id DESC;
END;
$$;
