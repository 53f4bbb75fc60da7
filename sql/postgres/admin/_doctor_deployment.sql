{% import "macros/doctor.sql" as doctor with context %}
{% set schema_subject = "'schema ' || " ~ (schema | literal) %}
CREATE OR REPLACE FUNCTION {{ db._doctor_deployment }}()
{{ doctor.result() }}
AS $$
    -- Whether what was deployed is there as it was deployed, as far as the catalog tells; what this release would change
    -- besides, pysqlbox status tells.
    -- returns: check, level, subject, detail, advice
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    schema_id CONSTANT oid := to_regnamespace({{ schema | ident | literal }})::oid;
BEGIN
    {% call doctor.look("drift", schema_subject, "every routine and view is there as it was deployed") %}
            WITH defined AS MATERIALIZED (
                SELECT
                    (p.proname || '(' || oidvectortypes(p.proargtypes) || ')') COLLATE "C" AS object,
                    sha256(convert_to(pg_get_functiondef(p.oid), 'UTF8')) AS hash
                FROM pg_proc AS p
                WHERE p.pronamespace = schema_id AND p.prokind IN ('f', 'p')
                UNION ALL
                SELECT c.relname::text COLLATE "C", sha256(convert_to(pg_get_viewdef(c.oid), 'UTF8'))
                FROM pg_class AS c
                WHERE c.relnamespace = schema_id AND c.relkind = 'v'
            )
            SELECT
                CASE WHEN u.missing IS NULL THEN 'warning' ELSE 'error' END, u.id,
                CASE WHEN u.missing IS NULL THEN 'it was changed since it was deployed' ELSE 'missing: ' || u.missing END,
                'Run pysqlbox migrate, or the script that pysqlbox render prints: it is made anew.'
            FROM (
                SELECT
                    n.id, n.catalog_hash,
                    string_agg(e.object, ', ' ORDER BY e.object) FILTER (WHERE d.object IS NULL) AS missing,
                    sha256(string_agg(d.hash, '' ORDER BY d.object)) AS hash
                FROM {{ db._unit }} AS n
                CROSS JOIN LATERAL unnest(n.objects) AS e (object)
                LEFT JOIN defined AS d ON d.object = e.object
                GROUP BY n.id, n.catalog_hash
            ) AS u
            WHERE u.missing IS NOT NULL OR u.hash <> u.catalog_hash
            ORDER BY u.id
    {% endcall %};

    {% call doctor.look("indexes", schema_subject, "none is missing or invalid") %}
            {% call doctor.missing_of() %}
                {{ doctor.constraint(db._unit, key.pk_unit, "PRIMARY KEY (id)") }},
                {{ doctor.constraint(db._box, key.pk_box, "PRIMARY KEY (name)") }},
                {{ doctor.constraint(db._version, key.pk_version, "PRIMARY KEY (version)") }},
                {{ doctor.constraint(db._place, key.pk_place, "PRIMARY KEY (box_name)") }},
                {{ doctor.constraint(db.join, key.pk_join, "PRIMARY KEY (join_id)") }},
                {{ doctor.constraint(db.join, key.uq_join_no, "UNIQUE (no)") }},
                {{ doctor.index(db.join, key.ix_join_tenant, "(tenant_id, no)") }},
                {{ doctor.index(db.join, key.ix_join_status, "(status, no)") }},
                {{ doctor.index(db.join, key.ix_join_age, "(finished_at) WHERE finished_at IS NOT NULL") }},
                {{ doctor.constraint(db.join_member, key.pk_join_member, "PRIMARY KEY (join_id, message_id)") }},
                {{ doctor.constraint(db.join_member, key.uq_join_member_no, "UNIQUE (join_id, no)") }},
                {{ doctor.index(db.join_member, key.ix_join_member_id, "(id)") }},
                {{ doctor.constraint(db.join_tally, key.pk_join_tally, "PRIMARY KEY (join_id, no)") }},
                {{ doctor.constraint(db.ledger, key.pk_ledger, "PRIMARY KEY (key)") }},
                {{ doctor.index(db.ledger, key.ix_ledger_age, "(last_seen_at) WHERE state <> 'Acquired' OR lease_until IS NOT NULL") }},
                {{ doctor.constraint(db.audit, key.pk_audit, "PRIMARY KEY (id)") }},
                {{ doctor.index(db.audit, key.ix_audit_age, "(changed_at)") }},
                {{ doctor.index(db.audit, key.ix_audit_actor, "(actor, id)") }},
                {{ doctor.index(db.audit, key.ix_audit_action, "(action, id)") }},
                {{ doctor.constraint(db.worker, key.pk_worker, "PRIMARY KEY (owner_token)") }},
                {{ doctor.index(db.worker, key.ix_worker_seen, "(seen_at)") }}
            {% endcall %}
            UNION ALL
            SELECT
                'error', 'index ' || c.relname, 'it is invalid: queries pass it over, though writes maintain it',
                CASE
                    WHEN c.relname ~ '_cc(new|old)\d*$' THEN format('DROP INDEX CONCURRENTLY %s;', c.oid::regclass)
                    ELSE format('REINDEX INDEX CONCURRENTLY %s;', c.oid::regclass)
                END
            FROM pg_index AS i
            INNER JOIN pg_class AS c ON c.oid = i.indexrelid
            WHERE c.relnamespace = schema_id AND NOT (i.indisvalid AND i.indisready)
    {% endcall %};

    {% call doctor.look("roles", schema_subject, "they have what they were given; or the deployment has none") %}
            WITH routine AS MATERIALIZED (
                SELECT p.oid, p.proname, p.prosecdef, p.proconfig, coalesce(p.proacl, acldefault('f', p.proowner)) AS acl
                FROM {{ db._unit }} AS u
                CROSS JOIN LATERAL unnest(u.objects) AS e (object)
                INNER JOIN pg_proc AS p
                    ON (p.proname || '(' || oidvectortypes(p.proargtypes) || ')') COLLATE "C" = e.object
                WHERE p.pronamespace = schema_id
                    AND EXISTS (SELECT FROM {{ db._unit }} AS r WHERE r.id LIKE 'roles/%')
            ),
            wanted AS (
                SELECT w.name, r.oid
                FROM unnest(ARRAY[
                    {{ (schema ~ "_producer") | literal }}, {{ (schema ~ "_worker") | literal }},
                    {{ (schema ~ "_operator") | literal }}, {{ (schema ~ "_viewer") | literal }}
                ]) AS w (name)
                LEFT JOIN pg_roles AS r ON r.rolname = w.name
                WHERE EXISTS (SELECT FROM routine)
            )
            SELECT
                'error', 'role ' || w.name, 'it is missing',
                'Run pysqlbox migrate --roles, or the script that pysqlbox render --roles prints.'
            FROM wanted AS w
            WHERE w.oid IS NULL
            UNION ALL
            SELECT
                'warning', 'role ' || w.name, 'it may not call ' || string_agg(routine.oid::regprocedure::text, ', '),
                string_agg(format('GRANT EXECUTE ON FUNCTION %s TO %I;', routine.oid::regprocedure, w.name), ' ')
            FROM wanted AS w
            CROSS JOIN routine
            WHERE w.name = {{ (schema ~ "_operator") | literal }} AND routine.proname NOT LIKE '\_%'
                AND NOT has_function_privilege(w.oid, routine.oid, 'EXECUTE')
            GROUP BY w.name
            UNION ALL
            SELECT
                'warning', 'PUBLIC', 'everybody may call ' || string_agg(routine.oid::regprocedure::text, ', '),
                string_agg(format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC;', routine.oid::regprocedure), ' ')
            FROM routine
            WHERE EXISTS (SELECT FROM aclexplode(routine.acl) AS a WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE')
            HAVING count(*) > 0
            UNION ALL
            SELECT
                'error', 'routine ' || routine.oid::regprocedure, 'it runs with its owner''s rights under its caller''s search_path',
                format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp;', routine.oid::regprocedure)
            FROM routine
            WHERE routine.prosecdef AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (routine.proconfig), false)
    {% endcall %};
END;
$$;
