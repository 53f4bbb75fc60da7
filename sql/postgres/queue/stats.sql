{% import "macros/stats.sql" as stats with context %}
CREATE OR REPLACE FUNCTION {{ box.stats }}()
RETURNS TABLE (
    topic text,
    ready bigint,
    scheduled bigint,
    in_flight bigint,
    done bigint,
    dead bigint,
    oldest_ready_seconds double precision
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
    -- How many messages each topic has in each state, and how long its oldest claimable one has been waiting.
    -- Done and dead ones are not counted but remembered, so the cost is that of what is waiting. What is counted is what is
    -- there: no low mark is relied on.
    -- returns: topic, ready, scheduled, in_flight, done, dead, oldest_ready_seconds; by topic, the total last, with a null topic
    -- errors: none
    -- locks: none
    -- role: worker, viewer
DECLARE
    now_at timestamptz := {{ db._now }}();
BEGIN
    RETURN QUERY
    WITH {{ stats.known() }}
    SELECT a.* FROM (
        SELECT k.topic, k.ready, k.scheduled, k.in_flight, k.done, k.dead,
            extract(epoch FROM now_at - k.since)::double precision AS oldest_ready_seconds
        FROM known AS k
        WHERE k.ready + k.scheduled + k.in_flight + k.dead > 0 OR k.done <> 0
        UNION ALL
        SELECT
            NULL, coalesce(sum(k.ready), 0)::bigint, coalesce(sum(k.scheduled), 0)::bigint,
            coalesce(sum(k.in_flight), 0)::bigint, coalesce(sum(k.done), 0)::bigint, coalesce(sum(k.dead), 0)::bigint,
            extract(epoch FROM now_at - min(k.since))::double precision
        FROM known AS k
    ) AS a
    ORDER BY a.topic NULLS LAST;
END;
$$;
