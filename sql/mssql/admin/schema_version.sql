-- The version of the tables, as the release that deployed them counts.
-- A client that knows only lower ones must not work on this schema.
-- returns: version
-- errors: none
-- locks: none
-- role: producer
CREATE OR ALTER PROCEDURE {{ db.schema_version }}
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    SELECT MAX(v.version) AS version FROM {{ db._version }} AS v;
END;
