{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box.ack }}(owner_token uuid, ids bigint[])
RETURNS TABLE (affected integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Marks messages done. Only those that this owner holds; all others, and repeated ids, are passed over.
    -- owner_token: not the nil uuid
    -- ids: not null
    -- returns: affected
    -- errors: PB001
    -- locks: group, lease
    -- role: worker
DECLARE
    now_at timestamptz;
    groups text[];
    moved integer;
    moved_ids bigint[];
    first_id bigint;
    last_id bigint;
BEGIN
    IF (owner_token <> '00000000-0000-0000-0000-000000000000' AND ids IS NOT NULL) IS NOT TRUE THEN
        PERFORM {{ db._check_settling }}(owner_token, ids);
    END IF;
    IF {{ queue.mark(box._grouped) }} > 0 THEN
        groups := {{ box._lock_groups }}(owner_token, ids);
    END IF;

    WITH gone AS (
        DELETE FROM {{ box.lease }} AS l
        WHERE l.id = ANY (ids) AND l.owner_token = $1
        RETURNING l.id, l.topic
    ),
    counted AS (
        INSERT INTO {{ box.tally }} (no, topic, done)
        SELECT nextval({{ box._ids | literal }}), t.topic, t.done
        FROM (SELECT gone.topic, count(*) AS done FROM gone GROUP BY gone.topic) AS t
    )
    SELECT count(*), array_agg(gone.id), min(gone.id), max(gone.id)
    INTO moved, moved_ids, first_id, last_id
    FROM gone;

    -- Read once the transaction has an xid and has drawn a number: the low marks rest on that.
    now_at := {{ db._now }}();
    IF last_id - first_id < least(moved, 1000) THEN
        INSERT INTO {{ box.done }} (id, processed_at, span, processed_by) VALUES (first_id, now_at, moved, $1);
    ELSIF moved > 0 THEN
        INSERT INTO {{ box.done }} (id, processed_at, span, processed_by)
        SELECT min(u.id), now_at, count(*), $1
        FROM (SELECT a.id, row_number() OVER (ORDER BY a.id) AS place FROM unnest(moved_ids) AS a (id)) AS u
        GROUP BY u.id - u.place, u.id / 1000
        ORDER BY min(u.id);
    END IF;
{% if box_name == "outbox" %}
    -- After the leases are taken, so that no step can be attached unseen.
    IF moved > 0 AND EXISTS (SELECT FROM {{ db.join_member }}) THEN
        PERFORM {{ db._join_count }}(moved_ids, 'completed');
    END IF;
{% endif %}

    IF groups <> '{}' THEN
        PERFORM {{ box._regroup }}(groups);
    END IF;
    affected := moved;
    RETURN NEXT;
END;
$$;
