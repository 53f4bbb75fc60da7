{% if test_clock %}
CREATE SEQUENCE IF NOT EXISTS {{ db._clock }} AS bigint MINVALUE 0 START 0;

CREATE OR REPLACE FUNCTION {{ db._set_clock }}(offset_seconds numeric)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Puts the test clock the given number of seconds ahead of the server's. Deployed for tests only.
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
    SELECT pg_catalog.setval({{ db._clock | literal }}, (offset_seconds * 1000)::bigint);
$$;
{% endif %}
