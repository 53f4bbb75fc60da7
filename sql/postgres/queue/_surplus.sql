{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._surplus }}(groups text[])
RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Of groups whose tickets or probes the caller has taken, those that need them. A group that somebody holds does not:
    -- the settlement of its last lease puts out the next ticket. That is sure unless a settlement has come to its end
    -- already and only its commit is missing: then it has the group's row locked against producers (and so against the
    -- key share lock here, for which no settlement waits), and the group is probed again.
    -- returns: text[]
    -- errors: none
    -- locks: group
    -- role: internal
DECLARE
    low_grouped bigint := {{ queue.mark(box._low_grouped) }};
    held text[];
    sure text[];
BEGIN
    held := ARRAY(
        SELECT DISTINCT u.group_id FROM unnest(groups) AS u (group_id) WHERE {{ queue.is_held("u.group_id") }}
    );
    IF held <> '{}' THEN
        sure := ARRAY(
            SELECT g.group_id FROM {{ box.group }} AS g WHERE g.group_id = ANY (held) FOR KEY SHARE SKIP LOCKED
        );
        -- Whoever has committed before the lock was there shows now.
        PERFORM {{ box._probe }}(ARRAY(
            SELECT u.group_id
            FROM unnest(held) AS u (group_id)
            WHERE u.group_id <> ALL (sure) OR NOT {{ queue.is_held("u.group_id") }}
        ));
    END IF;
    RETURN ARRAY(SELECT DISTINCT u.group_id FROM unnest(groups) AS u (group_id) WHERE u.group_id <> ALL (held));
END;
$$;
