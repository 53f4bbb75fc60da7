-- after: reject
CREATE OR REPLACE FUNCTION {{ db._set_place }}(place integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Gives the deployment its place, once for good, and with it every box that has not got it yet.
    -- A box's ids go on where the place begins; what was enqueued before keeps its id and its message_id.
    -- A sequence ends where its place does, so that whoever would draw from the next place's range fails instead.
    -- Called with the deployment's lock held.
    -- place: from 0 to 127; null for the one it has, if it has one
    -- returns: none
    -- errors: PB001, PB003
    -- locks: none
    -- role: internal
DECLARE
    known CONSTANT smallint := (SELECT max(p.place) FROM {{ db._place }} AS p);
    first_id CONSTANT bigint := coalesce(known, place)::bigint * 1099511627776 + 1;
    last_id CONSTANT bigint := first_id + 1099511627774;
    at_id bigint;
    box_name text;
    schema_name name;
    ids name;
BEGIN
    IF place NOT BETWEEN 0 AND 127 THEN
        PERFORM {{ db._reject }}('place', 'must be from 0 to 127');
    ELSIF place <> known THEN
        RAISE EXCEPTION USING ERRCODE = 'PB003', MESSAGE = format('place: the deployment has place %s, for good; leave it out', known);
    END IF;

    SELECT n.nspname INTO schema_name
    FROM pg_class AS c
    INNER JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = {{ db._box | literal }}::regclass;
    FOR box_name, ids IN
        SELECT b.name, ('_' || b.name || '_ids')::name
        FROM {{ db._box }} AS b
        WHERE first_id IS NOT NULL
            AND NOT EXISTS (SELECT FROM {{ db._place }} AS p WHERE p.box_name = b.name)
        ORDER BY b.name
    LOOP
        -- Before the first number a sequence shows 1 already.
        EXECUTE format(
            'SELECT s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END FROM %I.%I AS s', schema_name, ids
        ) INTO at_id;
        IF at_id > last_id THEN
            RAISE EXCEPTION USING
                ERRCODE = 'PB003',
                MESSAGE = format('place: box %s has ids above those of place %s; number a deployment before its first message', box_name, (first_id - 1) >> 40);
        END IF;
        -- Waits for whoever has drawn, and lets nobody draw until this is committed: only now is the last number known.
        EXECUTE format('ALTER SEQUENCE %I.%I START WITH %s MAXVALUE %s', schema_name, ids, first_id, last_id);
        EXECUTE format('SELECT s.last_value FROM %I.%I AS s', schema_name, ids) INTO at_id;
        IF at_id < first_id - 1 THEN
            PERFORM setval(format('%I.%I', schema_name, ids)::regclass, first_id - 1);
        END IF;
        INSERT INTO {{ db._place }} (box_name, place) VALUES (box_name, (first_id - 1) >> 40);
    END LOOP;
END;
$$;
