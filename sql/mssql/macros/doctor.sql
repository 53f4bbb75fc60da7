{#-
What the parts of doctor have in common. What they find they write into #pysqlbox_doctor, which doctor has made. INSERT …
EXEC would forbid doctor's own caller to do the same, and on Babelfish an OUTPUT parameter holds no long text.

    {% call doctor.look("paused", subject, "no topic is paused") %}
    SELECT N'note' AS level, … AS subject, … AS detail, … AS advice FROM …     -- a row for each thing that is found
    {% endcall %}

A check that finds nothing answers that it is fine; one that may not look, or cannot, answers that it does not know, and
the others go on. So a right is asked for before anything that needs it is touched: XACT_ABORT is off in a caller's
transaction, but not every error leaves that usable, and one that does not is raised again.
-#}

{#- What is asked before, and what to do where the answer is no. -#}
{% set rights = {
    "server": (
        "ISNULL(HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER STATE'), 0) = 1"
        ~ " OR ISNULL(HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER PERFORMANCE STATE'), 0) = 1"
        ~ " OR (SERVERPROPERTY('EngineEdition') = 5"
        ~ " AND ISNULL(HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE'), 0) = 1)",
        "CONCAT(N'GRANT VIEW SERVER STATE TO ', QUOTENAME(ORIGINAL_LOGIN()), N';')",
    ),
    "definition": (
        "SERVERPROPERTY('Babelfish') IS NOT NULL OR ISNULL(HAS_PERMS_BY_NAME(" ~ (schema | ident | literal) ~ ", N'SCHEMA', N'VIEW DEFINITION'), 0) = 1",
        "CONCAT(" ~ (("GRANT VIEW DEFINITION ON SCHEMA::" ~ (schema | ident) ~ " TO ") | literal) ~ ", QUOTENAME(USER_NAME()), N';')",
    ),
} %}

{% macro row(check, level, subject, detail, advice="NULL") -%}
    INSERT INTO #pysqlbox_doctor ([check], level, subject, detail, advice)
    SELECT {{ check | literal }}, {{ level | literal }}, {{ subject }}, {{ detail }}, {{ advice }};
{%- endmacro %}

{#- In a CATCH. -#}
{% macro unknown(check, subject) -%}
    IF XACT_STATE() = -1
        THROW;
    {{ row(check, "unknown", subject, "CONCAT(N'it could not be looked at: ', ERROR_MESSAGE())", "N'Call it as the owner of the database, or as a sysadmin.'") }}
{%- endmacro %}

{#-
check: its name; subject: an expression; fine: a text, what is so if nothing is found; right: one of rights, if one is
needed; elsewhere: false for what Babelfish does not have
-#}
{% macro look(check, subject, fine, right=none, elsewhere=true) -%}
{% if not elsewhere -%}
IF SERVERPROPERTY('Babelfish') IS NOT NULL
    BEGIN
        {{ row(check, "unknown", subject, "N'Babelfish has nothing of the kind that T-SQL could see'", "N'Look at it from PostgreSQL''s side.'") | indent(4) }}
    END
    ELSE
    {% endif -%}
{% if right -%}
IF NOT ({{ rights[right][0] }})
    BEGIN
        {{ row(check, "unknown", subject, "N'the right to look at it is missing'", rights[right][1]) | indent(4) }}
    END
    ELSE
    {% endif -%}
BEGIN
        BEGIN TRY
            INSERT INTO #pysqlbox_doctor ([check], level, subject, detail, advice)
            SELECT {{ check | literal }}, f.level, f.subject, f.detail, f.advice
            FROM (
                {{ caller() | trim }}
            ) AS f;
            IF @@ROWCOUNT = 0
            BEGIN
                {{ row(check, "ok", subject, fine | literal) | indent(12) }}
            END;
        END TRY
        BEGIN CATCH
            {{ unknown(check, subject) | indent(8) }}
        END CATCH;
    END;

{% endmacro %}

{#- A call of a part. What Babelfish finds missing it does not let anybody catch, so it is asked before. -#}
{% macro part(routine, subject, arguments="") -%}
    IF SERVERPROPERTY('Babelfish') IS NOT NULL AND OBJECT_ID({{ routine | literal }}, N'P') IS NULL
    BEGIN
        {{ row("doctor", "unknown", subject, "N'it could not be looked at: a routine is missing'", "N'Run pysqlbox migrate.'") | indent(4) }}
    END
    ELSE
    BEGIN
        BEGIN TRY
            EXEC {{ routine }}{{ " " ~ arguments if arguments }};
        END TRY
        BEGIN CATCH
            {{ unknown("doctor", subject) | indent(8) }}
        END CATCH;
    END;
{%- endmacro %}

{#- A number with what it counts: one, or more; texts. -#}
{% macro counted(number, one, more) -%}
    CONCAT({{ number }}, CASE WHEN {{ number }} = 1 THEN {{ (" " ~ one) | literal }} ELSE {{ (" " ~ more) | literal }} END)
{%- endmacro %}

{#- A length of time in whole seconds, as days and hours:minutes:seconds. -#}
{% macro lasting(since, until) -%}
    {%- set seconds = "DATEDIFF_BIG(SECOND, " ~ since ~ ", " ~ until ~ ")" -%}
    CONCAT(
        CASE WHEN {{ seconds }} >= 86400 THEN {{ counted(seconds ~ " / 86400", "day ", "days ") }} END,
        RIGHT(CONCAT(N'0', {{ seconds }} % 86400 / 3600), 2), N':', RIGHT(CONCAT(N'0', {{ seconds }} % 3600 / 60), 2), N':',
        RIGHT(CONCAT(N'0', {{ seconds }} % 60), 2)
    )
{%- endmacro %}

{#- A text as a literal that can be pasted. -#}
{% macro quoted(text) -%}
    CONCAT(N'N''', REPLACE({{ text }}, N'''', N''''''), N'''')
{%- endmacro %}

{#- The text behind a key form. -#}
{% macro text_of(key_form) -%}
    LEFT({{ key_form }}, LEN({{ key_form }}) - 1)
{%- endmacro %}

{#- An index by its table, its name and what makes it anew: a row of VALUES. -#}
{% macro constraint(table, name, definition) -%}
({{ table | literal }}, {{ name | literal }}, {{ ("ALTER TABLE " ~ table ~ " ADD CONSTRAINT " ~ name ~ " " ~ definition ~ ";") | literal }})
{%- endmacro %}

{% macro index(table, name, definition) -%}
({{ table | literal }}, {{ name | literal }}, {{ ("CREATE INDEX " ~ name ~ " ON " ~ table ~ " " ~ definition ~ ";") | literal }})
{%- endmacro %}

{#- The rows of VALUES that are not there, or are disabled. -#}
{% macro missing_of() -%}
    SELECT
                N'error' AS level, CONCAT(N'index ', PARSENAME(x.name, 1)) AS subject,
                CASE
                    WHEN i.is_disabled = 1 THEN N'it is disabled: what it served reads whole tables, or no key is unique'
                    ELSE N'it is missing: what it served reads whole tables, or no key is unique'
                END AS detail,
                CASE
                    WHEN i.is_disabled = 1 THEN CONCAT(N'ALTER INDEX ', x.name, N' ON ', x.table_name, N' REBUILD;')
                    ELSE x.statement
                END AS advice
            FROM (
                VALUES
                {{ caller() | trim }}
            ) AS x(table_name, name, statement)
            LEFT JOIN sys.indexes AS i
                ON i.object_id = OBJECT_ID(x.table_name, N'U')
                AND i.name COLLATE Latin1_General_100_BIN2 = PARSENAME(x.name, 1) COLLATE Latin1_General_100_BIN2
            WHERE i.object_id IS NULL OR i.is_disabled = 1
{%- endmacro %}
