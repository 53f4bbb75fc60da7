{% import "macros/arguments.sql" as arguments with context %}

-- The place that the deployment was given, from 0 to 127; null if it has none.
-- Ids of place N run from (N << 40) + 1, and a message_id that was drawn for one has it in its eleventh byte.
-- returns: place
-- errors: none
-- locks: none
-- role: producer, viewer
CREATE OR ALTER PROCEDURE {{ db.schema_place }}
AS
BEGIN
    {{ arguments.begin() }}

    SELECT MAX(p.place) AS place FROM {{ db._place }} AS p;
END;
