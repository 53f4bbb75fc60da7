-- Four roles for the schema, each with EXECUTE on the routines whose header names it, and nothing on any table.
-- A worker may also do what a producer may (handlers enqueue and start joins). A viewer only looks, and sees neither
-- payloads nor headers. An operator may do what all of them may, and look things up in the views. Routines, views and
-- tables have one owner, so the right to execute is all that a caller needs. Which routines and views were deployed
-- here, the deployment's own records tell; what others made in the schema keeps its rights.
SET NOCOUNT, XACT_ABORT ON;

DECLARE @template TABLE (
    id varchar(200) COLLATE Latin1_General_BIN2 NOT NULL,
    word varchar(20) COLLATE Latin1_General_BIN2 NOT NULL,
    PRIMARY KEY (id, word)
);
DECLARE @grantee TABLE (
    word varchar(20) COLLATE Latin1_General_BIN2 NOT NULL,
    role_name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL,
    PRIMARY KEY (word, role_name)
);
DECLARE @grants TABLE (no int IDENTITY (1, 1) NOT NULL PRIMARY KEY, statement nvarchar(max) NOT NULL);
DECLARE @no int = 1;
DECLARE @statement nvarchar(max);

INSERT INTO @template (id, word)
VALUES
{% for id, role in routine_roles %}
    ({{ id | literal }}, {{ role | literal }}){{ ";" if loop.last else "," }}
{% endfor %}

INSERT INTO @grantee (word, role_name)
VALUES
    ('producer', {{ (schema ~ "_producer") | literal }}),
    ('producer', {{ (schema ~ "_worker") | literal }}),
    ('producer', {{ (schema ~ "_operator") | literal }}),
    ('worker', {{ (schema ~ "_worker") | literal }}),
    ('worker', {{ (schema ~ "_operator") | literal }}),
    ('operator', {{ (schema ~ "_operator") | literal }}),
    ('viewer', {{ (schema ~ "_viewer") | literal }}),
    ('viewer', {{ (schema ~ "_operator") | literal }}),
    ('view', {{ (schema ~ "_operator") | literal }});

INSERT INTO @grants (statement)
SELECT DISTINCT N'CREATE ROLE ' + QUOTENAME(g.role_name) + N';'
FROM @grantee AS g
WHERE NOT EXISTS (
    SELECT 1 FROM sys.database_principals AS p WHERE p.name COLLATE Latin1_General_BIN2 = g.role_name
);

INSERT INTO @grants (statement)
SELECT DISTINCT
    N'GRANT ' + CASE WHEN o.type = 'V' THEN N'SELECT' ELSE N'EXECUTE' END + N' ON '
    + QUOTENAME({{ schema | literal }}) + N'.' + QUOTENAME(o.name) + N' TO ' + QUOTENAME(g.role_name) + N';'
FROM {{ db._unit }} AS u
LEFT JOIN @template AS t ON t.id = LEFT(u.id, CHARINDEX('@', u.id + '@') - 1)
INNER JOIN sys.objects AS o ON o.name COLLATE Latin1_General_BIN2 = u.object_name
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
INNER JOIN @grantee AS g ON g.word = CASE
    -- No view of joins has a payload.
    WHEN u.id LIKE 'views/schema/%' THEN 'viewer'
    WHEN u.id LIKE 'views/%' THEN 'view'
    ELSE t.word
END
WHERE s.name = {{ schema | literal }} AND (o.type = 'P' OR (o.type = 'V' AND u.id LIKE 'views/%'));

WHILE EXISTS (SELECT 1 FROM @grants AS g WHERE g.no >= @no)
BEGIN
    SELECT @statement = g.statement FROM @grants AS g WHERE g.no = @no;
    EXEC sys.sp_executesql @statement;
    SET @no = @no + 1;
END;
