{% import "macros/doctor.sql" as doctor with context %}
{% set subject = ("schema " ~ schema) | literal %}

-- Whether what was deployed is there as it was deployed, as far as the catalog tells; what this release would change
-- besides, pysqlbox status tells.
-- returns: check, level, subject, detail, advice; into #pysqlbox_doctor
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._doctor_deployment }}
AS
BEGIN
    SET NOCOUNT ON;

    {% call doctor.look("drift", subject, "every routine and view is there as it was deployed", right="definition") %}
            SELECT TOP (1000)
                CASE WHEN o.name IS NULL THEN N'error' ELSE N'warning' END AS level, u.id AS subject,
                CASE WHEN o.name IS NULL THEN CONCAT(N'missing: ', u.object_name) ELSE N'it was changed since it was deployed' END AS detail,
                N'Run pysqlbox migrate, or the script that pysqlbox render prints: it is made anew.' AS advice
            FROM {{ db._unit }} AS u
            LEFT JOIN (
                SELECT
                    CONVERT(varchar(128), x.name) COLLATE Latin1_General_BIN2 AS name,
                    HASHBYTES('SHA2_256', m.definition) AS hash
                FROM sys.objects AS x
                INNER JOIN sys.schemas AS s ON s.schema_id = x.schema_id
                LEFT JOIN sys.sql_modules AS m ON m.object_id = x.object_id
                WHERE s.name = {{ schema | literal }}
            ) AS o ON u.object_name = o.name
            WHERE u.object_name IS NOT NULL AND u.catalog_hash IS NOT NULL
                AND (o.name IS NULL OR o.hash <> u.catalog_hash)
            ORDER BY u.id
    {% endcall %}

    {% call doctor.look("indexes", subject, "none is missing or disabled", right="definition", elsewhere=false) %}
            {% call doctor.missing_of() %}
                {{ doctor.constraint(db._unit, key.pk_unit, "PRIMARY KEY (id)") }},
                {{ doctor.constraint(db._box, key.pk_box, "PRIMARY KEY (name)") }},
                {{ doctor.constraint(db._version, key.pk_version, "PRIMARY KEY (version)") }},
                {{ doctor.constraint(db._place, key.pk_place, "PRIMARY KEY (box_name)") }},
                {{ doctor.constraint(db.join, key.pk_join, "PRIMARY KEY NONCLUSTERED (join_id)") }},
                {{ doctor.constraint(db.join, key.uq_join_no, "UNIQUE CLUSTERED (no)") }},
                {{ doctor.index(db.join, key.ix_join_tenant, "(tenant_key, no)") }},
                {{ doctor.index(db.join, key.ix_join_status, "(status, no)") }},
                {{ doctor.index(db.join, key.ix_join_age, "(finished_at) WHERE finished_at IS NOT NULL") }},
                {{ doctor.constraint(db.join_member, key.pk_join_member, "PRIMARY KEY CLUSTERED (join_id, message_id)") }},
                {{ doctor.index(db.join_member, key.ix_join_member_id, "(id)") }},
                {{ doctor.constraint(db.join_tally, key.pk_join_tally, "PRIMARY KEY CLUSTERED (join_id, no)") }},
                {{ doctor.constraint(db.ledger, key.pk_ledger, "PRIMARY KEY NONCLUSTERED (ledger_key)") }},
                {{ doctor.constraint(db.ledger, key.uq_ledger_no, "UNIQUE CLUSTERED (no)") }},
                {{ doctor.index(db.ledger, key.ix_ledger_processed, "(processed_at) WHERE processed_at IS NOT NULL") }},
                {{ doctor.index(db.ledger, key.ix_ledger_expiry, "(lease_until) WHERE lease_until IS NOT NULL") }},
                {{ doctor.index(db.ledger, key.ix_ledger_released, "(last_seen_at) WHERE lease_id IS NULL AND processed_at IS NULL") }},
                {{ doctor.constraint(db.audit, key.pk_audit, "PRIMARY KEY CLUSTERED (id)") }},
                {{ doctor.index(db.audit, key.ix_audit_age, "(changed_at)") }},
                {{ doctor.index(db.audit, key.ix_audit_actor, "(actor, id)") }},
                {{ doctor.index(db.audit, key.ix_audit_action, "(action, id)") }},
                {{ doctor.constraint(db.worker, key.pk_worker, "PRIMARY KEY CLUSTERED (owner_token)") }},
                {{ doctor.index(db.worker, key.ix_worker_seen, "(seen_at)") }}
            {% endcall %}
    {% endcall %}

    {% call doctor.look("roles", subject, "they have what they were given; or the deployment has none", right="definition") %}
            SELECT
                N'error' AS level, CONCAT(N'role ', w.name) AS subject, N'it is missing' AS detail,
                N'Run pysqlbox migrate --roles, or the script that pysqlbox render --roles prints.' AS advice
            FROM (
                VALUES
                ({{ (schema ~ "_producer") | literal }}), ({{ (schema ~ "_worker") | literal }}),
                ({{ (schema ~ "_operator") | literal }}), ({{ (schema ~ "_viewer") | literal }})
            ) AS w (name)
            WHERE EXISTS (SELECT 1 FROM {{ db._unit }} AS r WHERE r.id LIKE 'roles/%')
                AND NOT EXISTS (
                    SELECT 1 FROM sys.database_principals AS p
                    WHERE p.name COLLATE Latin1_General_BIN2 = w.name COLLATE Latin1_General_BIN2
                )
            UNION ALL
            SELECT
                N'warning', CONCAT(N'role ', {{ (schema ~ "_operator") | literal }}), CONCAT(N'it may not call ', u.object_name),
                CONCAT(
                    N'GRANT EXECUTE ON ', QUOTENAME({{ schema | literal }}), N'.', QUOTENAME(u.object_name), N' TO ',
                    QUOTENAME({{ (schema ~ "_operator") | literal }}), N';'
                )
            FROM {{ db._unit }} AS u
            INNER JOIN sys.objects AS o ON CONVERT(varchar(128), o.name) COLLATE Latin1_General_BIN2 = u.object_name
            INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
            INNER JOIN sys.database_principals AS p ON p.name COLLATE Latin1_General_BIN2 = {{ (schema ~ "_operator") | literal }}
            WHERE EXISTS (SELECT 1 FROM {{ db._unit }} AS r WHERE r.id LIKE 'roles/%')
                AND s.name = {{ schema | literal }} AND o.type = 'P' AND u.object_name NOT LIKE '[_]%'
                AND NOT EXISTS (
                    SELECT 1 FROM sys.database_permissions AS g
                    WHERE g.class = 1 AND g.major_id = o.object_id AND g.grantee_principal_id = p.principal_id
                        AND g.permission_name = N'EXECUTE' AND g.state IN ('G', 'W')
                )
    {% endcall %}
END;
