{% import "macros/arguments.sql" as arguments with context %}

-- Removes a schedule. What it has enqueued stays.
-- name: not null
-- returns: affected; 1
-- errors: PB001, PB002
-- locks: message
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.schedule_remove }}
    @name nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @affected int = 0;

    IF @name IS NULL
    {{ arguments.reject("name", "must not be null") }}

    BEGIN TRANSACTION;
    -- No schedule's name is too long for its key.
    IF LEN((@name + N'.') COLLATE Latin1_General_100_BIN2) <= 256
    BEGIN
        DELETE s
        FROM {{ box.schedules }} AS s WITH (ROWLOCK, FORCESEEK ({{ key.pk_schedules }} (schedule_key)))
        WHERE s.schedule_key = CONVERT(nvarchar(256), @name + N'.');
        SET @affected = @@ROWCOUNT;
    END;
    IF @affected = 0
    {{ arguments.refuse(51002, "name: no such schedule; schedule_list shows those there are") }}
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
