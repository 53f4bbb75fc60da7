-- after: now
CREATE OR REPLACE FUNCTION {{ db._uuid }}()
RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    -- A time-ordered uuid (version 7): milliseconds first, so that the unique index grows at one end.
    -- returns: uuid
    -- errors: none
    -- locks: none
    -- role: internal
    SELECT encode(
        set_bit(set_bit(
            overlay(
                uuid_send(gen_random_uuid())
                PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                FROM 1 FOR 6
            ), 52, 1), 53, 1),
        'hex'
    )::uuid;
$$;
