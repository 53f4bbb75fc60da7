{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._probe }}(groups text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Has somebody look at these groups again a little later: what the caller can see now does not settle whether
    -- they need a ticket.
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
BEGIN
    IF groups = '{}' THEN
        RETURN;
    END IF;
    {{ queue.touch() }};
    INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic, group_id)
    SELECT {{ db._now }}() + interval '0.2 seconds', nextval({{ box._ids | literal }}), 0, '', g.group_id
    FROM unnest(groups) AS g (group_id);
END;
$$;
