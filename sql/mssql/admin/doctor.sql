{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/doctor.sql" as doctor with context %}
-- after: _doctor_deployment, _doctor_server, _doctor_sessions, _doctor_tables

-- What a DBA should know about this deployment: a row for each thing that is found, and for each check that finds none.
-- level is ok, note, warning, error, or unknown where a right is missing; advice is a statement that would mend it, which
-- is never run. Reads the catalog, statistics and the ends of indexes, so its cost does not grow with what is there; it
-- writes nothing but a temporary table, and works on a readable secondary.
-- returns: check, level, subject, detail, advice; the server, the deployment, then box by box
-- errors: none
-- locks: none
-- role: viewer
CREATE OR ALTER PROCEDURE {{ db.doctor }}
AS
BEGIN
    {{ arguments.begin() }}

    -- Nothing is written, so no error needs to end the caller's transaction.
    IF @callers_depth > 0
        SET XACT_ABORT OFF;
    -- Babelfish would keep it for the session.
    IF SERVERPROPERTY('Babelfish') IS NULL
        SET LOCK_TIMEOUT 500;

    CREATE TABLE #pysqlbox_doctor (
        no int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        [check] nvarchar(40) COLLATE Latin1_General_100_BIN2 NOT NULL,
        level nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
        subject nvarchar(1000) COLLATE Latin1_General_100_BIN2 NOT NULL,
        detail nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
        advice nvarchar(max) COLLATE Latin1_General_100_BIN2
    );

    {{ doctor.part(db._doctor_server, "N'server'") }}
    -- Whoever holds the version store back counts from a minute on.
    {{ doctor.part(db._doctor_sessions, "N'server'", "@after_seconds = 60") }}
    {{ doctor.part(db._doctor_tables, ("schema " ~ schema) | literal, "@least_pages = 1000") }}
    {{ doctor.part(db._doctor_deployment, ("schema " ~ schema) | literal) }}
    {{ doctor.part(db._join_doctor, ("schema " ~ schema) | literal) }}
    -- Each by its name, so that a new box makes this anew: Babelfish has no EXEC of a variable, and a statement as text would
    -- run with the caller's own rights.
{% for each in boxes | sort(attribute="name") %}
    {{ doctor.part((schema | ident) ~ "." ~ (("_" ~ each.name ~ "_doctor") | ident), ("box " ~ each.name) | literal) }}
{% endfor %}

    SELECT d.[check], d.level, d.subject, d.detail, d.advice
    FROM #pysqlbox_doctor AS d
    ORDER BY d.no;
END;
