{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/schedules.sql" as schedules with context %}

-- Moves a schedule on as schedule_fire does, without a message: missed times that nobody makes up for, and the first
-- time of a cron text.
-- name: not null
-- due_at: the planned time that is passed over; null for a schedule whose next time was still to be worked out
-- next_at: not null, after due_at, before the year 9000
-- cron: what next_at was worked out from; a schedule with another text by now is left alone; null asks for none
-- timezone: the same for its zone
-- returns: affected; 0 if it stands elsewhere, is not enabled, of another rule, or gone
-- errors: PB001
-- locks: message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.schedule_skip }}
    @name nvarchar(max),
    @due_at datetimeoffset(6),
    @next_at datetimeoffset(6),
    @cron nvarchar(max) = NULL,
    @timezone nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @due datetime2(6) = {{ schedules.utc("@due_at") }};
    DECLARE @next datetime2(6) = {{ schedules.utc("@next_at") }};
    DECLARE @affected int = 0;

    IF @name IS NULL
    {{ arguments.reject("name", "must not be null") }}
    IF @next_at IS NULL
        OR @next_at <= @due_at
        OR @next_at >= CONVERT(datetimeoffset(6), '9000-01-01T00:00:00+00:00')
    {{ arguments.reject("next_at", "must be after due_at, and before the year 9000") }}

    -- No schedule's name is too long for its key.
    IF LEN((@name + N'.') COLLATE Latin1_General_100_BIN2) <= 256
    BEGIN
        UPDATE s
        SET next_at = @next
        FROM {{ box.schedules }} AS s WITH (ROWLOCK, FORCESEEK ({{ key.pk_schedules }} (schedule_key)))
        WHERE s.schedule_key = CONVERT(nvarchar(256), @name + N'.')
            AND (s.next_at = @due OR (s.next_at IS NULL AND @due IS NULL))
            AND s.enabled = 1
            AND (@cron IS NULL OR s.cron = @cron)
            AND (@timezone IS NULL OR s.timezone = @timezone);
        SET @affected = @@ROWCOUNT;
    END;
    SELECT @affected AS affected;
END;
