-- after: _report
{% import "macros/arguments.sql" as arguments with context %}

-- Counts a step as completed, whatever becomes of its message. A step counts once, whichever way it is told.
-- join_id: not null
-- message_id: of a step of the join
-- returns: counted; false if it was counted before
-- errors: PB001, PB002
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.join_report_completed }}
    @join_id uniqueidentifier,
    @message_id uniqueidentifier
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @counted int;

    EXEC @counted = {{ db._join_report }} @join_id = @join_id, @message_id = @message_id, @state = N'completed';

    SELECT CONVERT(bit, @counted) AS counted;
END;
