{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._arrive }}()
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Makes sure that marks and flags belong to the rows that are here. A dump takes sequences later than rows, so that in
    -- a restored database the marks may stand above them; and logical replication brings rows without sequences. So they
    -- note which server, and which table of it, they were made for; anywhere else they begin anew.
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    home CONSTANT bigint := (
        SELECT hashint8extended(c.system_identifier, {{ box.ready | literal }}::regclass::oid::bigint) & 9223372036854775807
        FROM pg_control_system() AS c
    );
BEGIN
    IF {{ queue.mark(box._home) }} <> home THEN
        PERFORM setval(s.mark, 0)
        FROM unnest(ARRAY[
            {{ box._tick_xid | literal }}, {{ box._settled | literal }}, {{ box._low_ticket | literal }},
            {{ box._low_sure | literal }}, {{ box._late_at | literal }}, {{ box._late_to | literal }},
            {{ box._late_xid | literal }}, {{ box._low_above | literal }}, {{ box._low_below | literal }},
            {{ box._low_open | literal }}, {{ box._low_due | literal }}, {{ box._low_grouped | literal }},
            {{ box._low_tally | literal }}, {{ box._low_done | literal }}, {{ box._low_lease | literal }},
            {{ box._left_lease | literal }}
        ]::regclass[]) AS s (mark);
        IF EXISTS (SELECT FROM {{ box.group_member }}) OR EXISTS (SELECT FROM {{ box.group }}) THEN
            PERFORM setval({{ box._grouped | literal }}, 1);
        END IF;
        IF EXISTS (SELECT FROM {{ box.lane }}) OR EXISTS (SELECT FROM {{ box.paused }}) THEN
            PERFORM setval({{ box._special | literal }}, 1);
        END IF;
        PERFORM setval({{ box._home | literal }}, home);
    END IF;
    PERFORM set_config({{ queue.own_setting("home") }}, 'here', false);
END;
$$;
