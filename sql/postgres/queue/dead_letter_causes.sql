{% import "macros/causes.sql" as causes with context %}
CREATE OR REPLACE FUNCTION {{ box.dead_letter_causes }}(
    "limit" integer DEFAULT 100,
    after_id bigint DEFAULT 0,
    OUT id bigint,
    INOUT topic text DEFAULT NULL,
    OUT cause text
)
RETURNS SETOF record
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Dead, expired and cancelled messages, each with its cause, a page at a time: which ones a cause of dead_causes has.
    -- limit: from 1 to 10000
    -- after_id: the last id of the page before
    -- topic: only this one; null for all
    -- returns: id, topic, cause; in id order
    -- errors: PB001
    -- locks: none
    -- role: viewer
DECLARE
    only_topic CONSTANT text := topic;
    found bigint[];
BEGIN
    IF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    END IF;
    -- Each by the one index that has its order.
    IF only_topic IS NULL THEN
        SELECT array_agg(c.id) INTO found FROM (
            SELECT d.id FROM {{ box.dead }} AS d WHERE d.id > coalesce(after_id, 0) ORDER BY d.id LIMIT "limit"
        ) AS c;
    ELSE
        SELECT array_agg(c.id) INTO found FROM (
            SELECT d.id FROM {{ box.dead }} AS d
            WHERE (d.topic, d.id) > (only_topic, coalesce(after_id, 0)) AND d.topic <= only_topic
            ORDER BY d.topic, d.id
            LIMIT "limit"
        ) AS c;
    END IF;
    RETURN QUERY
    -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
    WITH letter AS MATERIALIZED (
        SELECT
            d.id, d.topic,
            coalesce(
                nullif(m.line, ''),
                CASE WHEN d.expired THEN 'Expired' WHEN d.cancelled THEN 'Cancelled' ELSE '{{ "Dead" if kind == "inbox" else "Failed" }}' END
            ) AS line
        FROM unnest(found) AS u (id)
        CROSS JOIN LATERAL (
            SELECT e.id, e.topic, e.expired, e.cancelled FROM {{ box.dead }} AS e WHERE e.id = u.id OFFSET 0
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
    known AS MATERIALIZED (
        SELECT
            n.line,
            {{ causes.folded("u.line") }} AS cause
        FROM (SELECT DISTINCT letter.line FROM letter) AS n
        CROSS JOIN LATERAL (
            SELECT
                {{ causes.located(causes.unquoted("n.line")) }} AS line
            OFFSET 0
        ) AS u
    )
    SELECT letter.id, letter.topic, known.cause
    FROM letter
    INNER JOIN known ON known.line = letter.line
    ORDER BY letter.id;
END;
$$;
