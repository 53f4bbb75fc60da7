{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- What whoever fires schedules looks at again and again: the server's clock, whether any schedule is due or its next
-- time still to be worked out, and when the next one will be. A few rows of an index; nobody waits, nothing is written.
-- returns: now_at, is_due, next_at; next_at is after now_at, null if nothing is planned
-- errors: none
-- locks: none
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.schedule_next }}
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @is_due bit = 0;

    -- An index begins with the nulls.
    IF EXISTS (
        SELECT 1
        FROM {{ box.schedules }} AS s
        WHERE s.enabled = 1 AND (s.next_at IS NULL OR s.next_at <= @now_at)
    )
        SET @is_due = 1;

    SELECT
        @now_at AS now_at, @is_due AS is_due,
        (SELECT MIN(s.next_at) FROM {{ box.schedules }} AS s WHERE s.enabled = 1 AND s.next_at > @now_at) AS next_at;
END;
