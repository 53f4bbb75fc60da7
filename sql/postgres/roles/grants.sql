-- Three roles for the schema, each with EXECUTE on the routines whose header names it, and nothing on any table.
-- A worker may also do what a producer may (handlers enqueue and start joins), and an operator what a worker may,
-- and look things up in the views. Public routines then run with the rights of the schema's owner, and nobody else
-- may call anything here.
DO $grants$
DECLARE
    role_name text;
    routine record;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[
        {{ (schema ~ "_producer") | literal }}, {{ (schema ~ "_worker") | literal }}, {{ (schema ~ "_operator") | literal }}
    ]
    LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = role_name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
            EXCEPTION
                -- Roles belong to the whole server, and another of its databases may be deploying now.
                WHEN duplicate_object OR unique_violation THEN NULL;
            END;
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', {{ schema | literal }}, role_name);
        EXECUTE format('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC, %I', {{ schema | literal }}, role_name);
    END LOOP;

    FOR routine IN
        SELECT p.oid::regprocedure AS signature, substring(p.prosrc FROM '-- role: (producer|worker|operator)') AS role
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = {{ schema | ident | literal }}::regnamespace
    LOOP
        CONTINUE WHEN routine.role IS NULL;
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', routine.signature);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', routine.signature, {{ schema | literal }} || '_' || routine.role);
        IF routine.role = 'producer' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', routine.signature, {{ (schema ~ "_worker") | literal }});
        END IF;
        IF routine.role <> 'operator' THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', routine.signature, {{ (schema ~ "_operator") | literal }});
        END IF;
    END LOOP;

    FOR routine IN
        SELECT c.oid::regclass AS name
        FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = {{ schema | ident | literal }}::regnamespace AND c.relkind = 'v'
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I', routine.name, {{ (schema ~ "_operator") | literal }});
    END LOOP;
END
$grants$;
