{% import "macros/doctor.sql" as doctor with context %}
{% set schema_subject = "'schema ' || " ~ (schema | literal) %}
-- after: _doctor_deployment, _doctor_server, _doctor_sessions, _doctor_tables
CREATE OR REPLACE FUNCTION {{ db.doctor }}()
{{ doctor.result() }}
AS $$
    -- What a DBA should know about this deployment: a row for each thing that is found, and for each check that finds none.
    -- level is ok, note, warning, error, or unknown where a right is missing; advice is a statement that would mend it, which
    -- is never run. Reads the catalog, statistics and the ends of indexes, so its cost does not grow with what is there; it
    -- works in a READ ONLY transaction and on a standby.
    -- returns: check, level, subject, detail, advice; the server, the deployment, then box by box
    -- errors: none
    -- locks: none
    -- role: viewer
DECLARE
    box_name text;
BEGIN
    {{ doctor.part("SELECT d.* FROM " ~ db._doctor_server ~ "() AS d", "'server'") }};
    -- Whoever holds the horizon back counts from a minute on.
    {{ doctor.part("SELECT d.* FROM " ~ db._doctor_sessions ~ "(60) AS d", "'server'") }};
    {{ doctor.part("SELECT d.* FROM " ~ db._doctor_tables ~ "(1000) AS d", schema_subject) }};
    {{ doctor.part("SELECT d.* FROM " ~ db._doctor_deployment ~ "() AS d", schema_subject) }};
    {{ doctor.part("SELECT d.* FROM " ~ db._join_doctor ~ "() AS d", schema_subject) }};
    FOR box_name IN SELECT b.name FROM {{ db._box }} AS b ORDER BY b.name LOOP
        {{ doctor.part("EXECUTE format('SELECT d.* FROM %I.%I() AS d', " ~ (schema | literal) ~ ", '_' || box_name || '_doctor')", "'box ' || box_name") }};
    END LOOP;
EXCEPTION
    WHEN {{ doctor.blind() }} THEN
        RETURN QUERY
        SELECT
            'doctor', 'unknown', {{ schema_subject }}, 'its boxes could not be looked at: ' || SQLERRM,
            'Call it as the owner of the schema, or as a superuser.';
END;
$$;
