{% import "macros/arguments.sql" as arguments with context %}

-- The version of the tables, as the release that deployed them counts.
-- A client that knows only lower ones must not work on this schema.
-- returns: version
-- errors: none
-- locks: none
-- role: producer, viewer
CREATE OR ALTER PROCEDURE {{ db.schema_version }}
AS
BEGIN
    {{ arguments.begin() }}

    SELECT MAX(v.version) AS version FROM {{ db._version }} AS v;
END;
