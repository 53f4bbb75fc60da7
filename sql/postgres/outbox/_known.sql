CREATE OR REPLACE FUNCTION {{ box._known }}(message_id uuid, is_given boolean)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- The id of the message with this message_id; null if there is none. Apart from enqueue for the sake of the settings:
    -- every call of a routine pays for those that it has, and only what looks rows up needs them.
    -- is_given: whether the message_id was given with that message, or else drawn for it
    -- returns: bigint
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    wanted CONSTANT uuid := message_id;
BEGIN
    IF is_given THEN
        RETURN (SELECT m.id FROM {{ box.message }} AS m WHERE m.message_id = wanted AND m.is_given);
    END IF;
    RETURN (SELECT m.id FROM {{ box.message }} AS m WHERE m.id = {{ "wanted" | drawn_id }} AND m.message_id = wanted);
END;
$$;
