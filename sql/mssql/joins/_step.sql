-- after: _nudge
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Counts one step of a join, and has the next claim look at the join.
-- state: completed or failed
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._join_step }}
    @join_id uniqueidentifier,
    @state nvarchar(10)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @completed int = CASE WHEN @state = N'completed' THEN 1 ELSE 0 END;

    INSERT INTO {{ db.join_tally }} (join_id, completed, failed, created_at)
    VALUES (@join_id, @completed, 1 - @completed, {{ clock.now() }});
    EXEC {{ db._join_nudge }} @join_id = @join_id;
END;
