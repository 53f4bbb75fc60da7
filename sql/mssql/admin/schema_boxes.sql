{% import "macros/arguments.sql" as arguments with context %}

-- The boxes of this deployment.
-- returns: name, kind; the default ones first, then by name
-- errors: none
-- locks: none
-- role: producer, viewer
CREATE OR ALTER PROCEDURE {{ db.schema_boxes }}
AS
BEGIN
    {{ arguments.begin() }}

    SELECT b.name, b.kind
    FROM {{ db._box }} AS b
    ORDER BY CASE b.name WHEN 'outbox' THEN 1 WHEN 'inbox' THEN 2 ELSE 3 END, b.name;
END;
