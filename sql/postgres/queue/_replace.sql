{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._replace }}(keys text[], newest bigint[])
RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Removes the older waiting messages of these collapse keys, and enters the newest of each. What is claimed or
    -- settled stays, and so does what another transaction is just claiming or collapsing: nobody waits.
    -- keys: without repeats, in any order
    -- newest: the message of each key that stays
    -- returns: text[]; the keys of which something was removed
    -- errors: none
    -- locks: group, message
    -- role: internal
DECLARE
    older bigint[];
    removed bigint[];
    groups text[];
    replaced text[];
BEGIN
    WITH gone AS (
        DELETE FROM {{ box.collapse }} AS c
        WHERE c.ctid = ANY (ARRAY(
            -- Looked up with locks, so in a subquery of its own, whatever the planner knew of the table.
            SELECT f.ctid
            FROM unnest(keys, newest) AS k (collapse_key, id)
            CROSS JOIN LATERAL (
                SELECT o.ctid
                FROM {{ box.collapse }} AS o
                WHERE o.collapse_key = k.collapse_key AND o.id < k.id
                FOR UPDATE SKIP LOCKED
            ) AS f
        ))
        RETURNING c.id
    )
    SELECT array_agg(gone.id) INTO older FROM gone;

    INSERT INTO {{ box.collapse }} (collapse_key, id)
    SELECT k.collapse_key, k.id FROM unnest(keys, newest) AS k (collapse_key, id);
    IF older IS NULL THEN
        RETURN '{}';
    END IF;

    -- One that is just being renewed is newer than it looks. One that is done is left alone, for a cleanup may want it, and
    -- so is one that is leased: its owner may have to write to it.
    older := ARRAY(
        SELECT m.id
        FROM {{ box.message }} AS m
        WHERE m.id = ANY (older)
            AND NOT {{ queue.is_done("m.id") }}
            AND NOT EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.id = m.id OFFSET 0)
        FOR UPDATE SKIP LOCKED
    );
    removed := {{ box._withdraw }}(older);
    WITH gone AS (
        DELETE FROM {{ box.message }} AS m
        WHERE m.id = ANY (removed)
        RETURNING m.collapse_key, m.group_id
    )
    SELECT array_agg(DISTINCT gone.collapse_key), array_agg(DISTINCT gone.group_id) FILTER (WHERE gone.group_id IS NOT NULL)
    INTO replaced, groups
    FROM gone;
{% if box_name == "outbox" %}
    IF EXISTS (SELECT FROM {{ db.join_member }}) THEN
        -- What is replaced never runs: as a step it has failed.
        PERFORM {{ db._join_count }}(removed, 'failed');
        PERFORM {{ db._join_mark }}(removed, 'failed');
    END IF;
{% endif %}
    IF groups IS NOT NULL THEN
        -- Who was behind a head that is gone need not wait for its time, or for a claim of its topic.
        PERFORM {{ box._regroup }}(groups);
    END IF;
    RETURN coalesce(replaced, '{}');
END;
$$;
