{% import "macros/arguments.sql" as arguments with context %}

-- Writes down how these messages counted as steps, before where they stand no longer tells it.
-- state: completed or failed
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._join_mark }}
    @ids nvarchar(max),
    @state nvarchar(10)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);

    INSERT INTO @wanted (id)
    SELECT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j;

    UPDATE jm
    SET counted = @state
    FROM @wanted AS w
    INNER JOIN {{ db.join_member }} AS jm WITH (ROWLOCK, FORCESEEK) ON jm.id = w.id
    WHERE jm.counted IS NULL
    OPTION (KEEPFIXED PLAN);
END;
