-- Four roles for the schema, each with EXECUTE on the routines whose header names it, and nothing on any table.
-- A worker may also do what a producer may (handlers enqueue and start joins). A viewer only looks, and sees neither
-- payloads nor headers. An operator may do what all of them may, and look things up in the views. Public routines then
-- run with the rights of the schema's owner, and nobody else may call anything that was deployed here. Which routines and
-- views that are, the deployment's own records tell; what others made in the schema keeps its rights. Only what differs
-- is changed.
DO $grants$
DECLARE
    role_name text;
    command text;
    unsafe text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[
        {{ (schema ~ "_producer") | literal }}, {{ (schema ~ "_worker") | literal }},
        {{ (schema ~ "_operator") | literal }}, {{ (schema ~ "_viewer") | literal }}
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
        IF NOT has_schema_privilege(role_name, {{ schema | literal }}, 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', {{ schema | literal }}, role_name);
        END IF;
    END LOOP;

    -- The commands that are missing, in the order in which they are run.
    FOR command IN
        WITH template (id, role) AS (
            VALUES
{% for id, role in routine_roles %}
                ({{ id | literal }}, {{ role | literal }}){{ "" if loop.last else "," }}
{% endfor %}
        ), grantee (role, name) AS (
            VALUES
                ('producer', {{ (schema ~ "_producer") | literal }}),
                ('producer', {{ (schema ~ "_worker") | literal }}),
                ('producer', {{ (schema ~ "_operator") | literal }}),
                ('worker', {{ (schema ~ "_worker") | literal }}),
                ('worker', {{ (schema ~ "_operator") | literal }}),
                ('operator', {{ (schema ~ "_operator") | literal }}),
                ('viewer', {{ (schema ~ "_viewer") | literal }}),
                ('viewer', {{ (schema ~ "_operator") | literal }}),
                ('view', {{ (schema ~ "_operator") | literal }})
        ), ours AS (
            SELECT
                e.object COLLATE "C" AS object,
                CASE
                    -- No view of joins has a payload.
                    WHEN u.id LIKE 'views/schema/%' THEN 'viewer'
                    WHEN u.id LIKE 'views/%' THEN 'view'
                    ELSE t.role
                END AS role
            FROM {{ db._unit }} AS u
            LEFT JOIN template AS t ON t.id = split_part(u.id, '@', 1)
            CROSS JOIN LATERAL unnest(u.objects) AS e (object)
        ), target AS (
            SELECT
                p.oid, 'FUNCTION' AS kind, p.oid::regprocedure::text AS name, o.role, p.prosecdef AS is_definers,
                coalesce(p.proacl, acldefault('f', p.proowner)) AS acl, 'EXECUTE' AS privilege
            FROM ours AS o
            INNER JOIN pg_catalog.pg_proc AS p
                ON (p.proname || '(' || oidvectortypes(p.proargtypes) || ')') COLLATE "C" = o.object
            WHERE p.pronamespace = {{ schema | ident | literal }}::regnamespace AND p.prokind = 'f'
            UNION ALL
            SELECT
                c.oid, 'TABLE', c.oid::regclass::text, o.role, true,
                coalesce(c.relacl, acldefault('r', c.relowner)), 'SELECT'
            FROM ours AS o
            INNER JOIN pg_catalog.pg_class AS c ON c.relname::text COLLATE "C" = o.object
            WHERE c.relnamespace = {{ schema | ident | literal }}::regnamespace AND c.relkind = 'v'
        ), held AS (
            SELECT DISTINCT t.oid, t.kind, t.name, a.privilege_type AS privilege, a.grantee, r.rolname
            FROM target AS t
            CROSS JOIN LATERAL aclexplode(t.acl) AS a
            LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee
        ), wanted AS (
            SELECT DISTINCT t.oid, t.kind, t.name, t.privilege, g.name AS rolname
            FROM target AS t
            INNER JOIN grantee AS g ON g.role = t.role
        ), step (no, before, kind, name, after) AS (
            SELECT 1, 'REVOKE ALL ON', h.kind, h.name, 'FROM ' || coalesce(quote_ident(h.rolname), 'PUBLIC')
            FROM held AS h
            WHERE h.grantee = 0
                OR (
                    h.rolname IN (SELECT g.name FROM grantee AS g)
                    AND NOT EXISTS (
                        SELECT FROM wanted AS w
                        WHERE w.oid = h.oid AND w.rolname = h.rolname AND w.privilege = h.privilege
                    )
                )
            UNION
            SELECT 2, 'ALTER', t.kind, t.name, 'SECURITY DEFINER'
            FROM target AS t
            WHERE NOT t.is_definers AND t.role <> 'internal'
            UNION
            SELECT 3, 'GRANT ' || w.privilege || ' ON', w.kind, w.name, 'TO ' || quote_ident(w.rolname)
            FROM wanted AS w
            WHERE NOT EXISTS (
                SELECT FROM held AS h
                WHERE h.oid = w.oid AND h.rolname = w.rolname AND h.privilege = w.privilege
            )
        )
        -- A right can be given on many routines at once; the owner's rights only one by one.
        SELECT concat_ws(' ', s.before, s.kind, string_agg(s.name, ', ' ORDER BY s.name), s.after)
        FROM (
            SELECT
                step.*,
                (row_number() OVER (PARTITION BY no, before, kind, after ORDER BY name) - 1)
                / CASE WHEN no = 2 THEN 1 ELSE 500 END AS portion
            FROM step
        ) AS s
        GROUP BY s.no, s.before, s.kind, s.after, s.portion
        ORDER BY s.no
    LOOP
        EXECUTE command;
    END LOOP;

    SELECT string_agg(e.object, ', ') INTO unsafe
    FROM {{ db._unit }} AS u
    CROSS JOIN LATERAL unnest(u.objects) AS e (object)
    INNER JOIN pg_catalog.pg_proc AS p
        ON (p.proname || '(' || oidvectortypes(p.proargtypes) || ')') COLLATE "C" = e.object
    WHERE p.pronamespace = {{ schema | ident | literal }}::regnamespace AND p.prosecdef
        AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false);
    IF unsafe IS NOT NULL THEN
        RAISE EXCEPTION 'these would run with their owner''s rights under their caller''s search_path: %', unsafe;
    END IF;
END;
$grants$;
