{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._promote }}(room integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Moves up to room messages and groups whose time has come to the tail of what is ready, earliest first.
{% if box_name == "outbox" %}
    -- Among them are probes of joins: whoever takes them looks whether those joins are complete.
{% endif %}
    -- returns: none
    -- errors: none
{% if box_name == "outbox" %}
    -- locks: join, group
{% else %}
    -- locks: group
{% endif %}
    -- role: internal
DECLARE
    now_at timestamptz := {{ db._now }}();
    from_at timestamptz := {{ queue.time_mark(box._low_due) }};
    groups text[];
{% if box_name == "outbox" %}
    joins uuid[];
    own_joins uuid[];
{% endif %}
    spare integer;
BEGIN
    WITH due AS (
        DELETE FROM {{ box.scheduled }} AS s
        WHERE s.ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM {{ box.scheduled }} AS c
            WHERE c.due_at >= from_at AND c.due_at <= now_at
            ORDER BY c.due_at, c.no
            LIMIT room
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING s.due_at, s.no, s.id, s.expires_at, s.lane, s.topic, s.group_id{{ ", s.join_id, s.probe_xid" if box_name == "outbox" else "" }}
    ),
    moved AS (
        INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic)
        SELECT d.lane, nextval({{ box._ids | literal }}), d.id, d.expires_at, d.topic
        FROM (SELECT due.* FROM due WHERE due.id IS NOT NULL ORDER BY due.due_at, due.no) AS d
    )
{% if box_name == "outbox" %}
    SELECT
        array_agg(DISTINCT due.group_id) FILTER (WHERE due.group_id IS NOT NULL),
        array_agg(DISTINCT due.join_id) FILTER (WHERE due.join_id IS NOT NULL),
        array_agg(DISTINCT due.join_id) FILTER (WHERE due.probe_xid = pg_current_xact_id()),
        count(*) - count(due.id) - count(DISTINCT due.group_id)
    INTO groups, joins, own_joins, spare
    FROM due;

    -- A new statement: what those who left the probes have counted is committed and shows.
    IF joins IS NOT NULL THEN
        PERFORM {{ db._join_fold }}(joins, own_joins);
    END IF;
{% else %}
    SELECT
        array_agg(DISTINCT due.group_id) FILTER (WHERE due.group_id IS NOT NULL),
        count(*) - count(due.id) - count(DISTINCT due.group_id)
    INTO groups, spare
    FROM due;
{% endif %}

    IF groups IS NOT NULL THEN
        PERFORM {{ box._regroup }}({{ box._surplus }}(groups));
    END IF;
    -- Probes, and tickets of a group that has another, take room from messages; where there are many, they go at once.
    IF spare * 2 > room AND room < 5000 THEN
        PERFORM {{ box._promote }}(5000);
    END IF;
END;
$$;
