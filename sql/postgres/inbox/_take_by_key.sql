{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._take_by_key }}(message_id text, source text)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Takes a message out of wherever it is, unless it is done or dead: seen, waiting, or leased to anybody.
    -- The caller decides what becomes of it, in the same transaction. Its group gets a new ticket at the end.
    -- returns: bigint; null if there is nothing to take
    -- errors: PB001
    -- locks: group, lease, message
    -- role: internal
DECLARE
    found_id bigint;
    found_group text;
BEGIN
    PERFORM {{ box._check_key }}(message_id, source);
    SELECT m.id, m.group_id INTO found_id, found_group
    FROM {{ box.message }} AS m
    WHERE m.source = $2 AND m.message_id = $1;
    IF EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.id = found_id) THEN
        -- Whoever takes leases of a group does so one after another; nobody has to wait for a group that only waits.
        PERFORM FROM {{ box.group }} AS g WHERE g.group_id = found_group FOR NO KEY UPDATE;
        DELETE FROM {{ box.lease }} AS l WHERE l.id = found_id;
        IF FOUND THEN
            RETURN found_id;
        END IF;
    END IF;
    PERFORM FROM {{ box.message }} AS m WHERE m.id = found_id FOR UPDATE;
    IF {{ queue.is_done("found_id") }}
        OR EXISTS (SELECT FROM {{ box.dead }} AS d WHERE d.id = found_id)
    THEN
        RETURN NULL;
    END IF;
    DELETE FROM {{ box.seen }} AS s WHERE s.id = found_id;
    IF NOT FOUND AND {{ box._withdraw }}(ARRAY[found_id]) = '{}' THEN
        RETURN NULL;
    END IF;
    RETURN found_id;
END;
$$;
