-- Three roles for the schema, each with EXECUTE on the routines whose header names it, and nothing on any table.
-- A worker may also do what a producer may (handlers enqueue and start joins), and an operator what a worker may,
-- and look things up in the views. Routines, views and tables have one owner, so the right to execute is all that a
-- caller needs.
SET NOCOUNT, XACT_ABORT ON;

DECLARE @roles TABLE (role_name sysname NOT NULL PRIMARY KEY, word nvarchar(20) NOT NULL);
DECLARE @grants TABLE (no int IDENTITY (1, 1) NOT NULL PRIMARY KEY, statement nvarchar(max) NOT NULL);
DECLARE @no int = 1;
DECLARE @statement nvarchar(max);

INSERT INTO @roles (role_name, word)
VALUES
    ({{ (schema ~ "_producer") | literal }}, N'producer'),
    ({{ (schema ~ "_worker") | literal }}, N'worker'),
    ({{ (schema ~ "_operator") | literal }}, N'operator');

INSERT INTO @grants (statement)
SELECT N'CREATE ROLE ' + QUOTENAME(r.role_name) + N';'
FROM @roles AS r
WHERE NOT EXISTS (SELECT 1 FROM sys.database_principals AS p WHERE p.name = r.role_name);

INSERT INTO @grants (statement)
SELECT N'GRANT EXECUTE ON ' + QUOTENAME({{ schema | literal }}) + N'.' + QUOTENAME(o.name) + N' TO ' + QUOTENAME(r.role_name) + N';'
FROM sys.objects AS o
INNER JOIN sys.sql_modules AS m ON m.object_id = o.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
INNER JOIN @roles AS r
    ON m.definition LIKE N'%-- role: ' + r.word + N'%'
    OR (r.word IN (N'worker', N'operator') AND m.definition LIKE N'%-- role: producer%')
    OR (r.word = N'operator' AND m.definition LIKE N'%-- role: worker%')
WHERE s.name = {{ schema | literal }} AND o.type = 'P';

INSERT INTO @grants (statement)
SELECT N'GRANT SELECT ON ' + QUOTENAME({{ schema | literal }}) + N'.' + QUOTENAME(o.name) + N' TO ' + QUOTENAME(r.role_name) + N';'
FROM sys.objects AS o
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
INNER JOIN @roles AS r ON r.word = N'operator'
WHERE s.name = {{ schema | literal }} AND o.type = 'V';

WHILE EXISTS (SELECT 1 FROM @grants AS g WHERE g.no >= @no)
BEGIN
    SELECT @statement = g.statement FROM @grants AS g WHERE g.no = @no;
    EXEC sys.sp_executesql @statement;
    SET @no = @no + 1;
END;
