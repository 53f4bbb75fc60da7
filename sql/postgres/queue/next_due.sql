{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.next_due }}()
RETURNS TABLE (due_at timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- When the box next wants somebody's attention that nothing else will tell of: the earliest due time of what waits
    -- for one, or the earliest end of a lease. What is claimable already does not count. A time in the past counts as long
    -- as no claim or reap has seen to it. A few rows of two indexes are read; nobody waits and nothing is written.
{% if box_name == "outbox" %}
    -- Joins that wait to be looked at count, and a parked join.wait message by its hour.
{% endif %}
    -- returns: due_at; null if there is none
    -- errors: none
    -- locks: none
    -- role: worker, viewer
DECLARE
    now_at CONSTANT timestamptz := {{ db._now }}();
    from_due timestamptz;
    looked timestamptz;
    left_at timestamptz;
BEGIN
    {{ queue.arrive() }};
    -- As a claim looks for what is due, and a reap for what has run out. The marks are read before the query's snapshot.
    from_due := {{ queue.time_mark(box._low_due) }};
    looked := {{ queue.time_mark(box._low_lease) }};
    left_at := nullif({{ queue.mark(box._left_lease) }}, 0) * interval '1 microsecond' + 'epoch'::timestamptz;
    looked := CASE WHEN looked > now_at THEN '-infinity' ELSE least(looked - interval '2 seconds', left_at) END;
    RETURN QUERY
    SELECT least(
        (SELECT s.due_at FROM {{ box.scheduled }} AS s WHERE s.due_at >= from_due ORDER BY s.due_at LIMIT 1),
        (SELECT l.locked_until FROM {{ box.lease }} AS l WHERE l.locked_until >= looked ORDER BY l.locked_until LIMIT 1)
    );
END;
$$;
