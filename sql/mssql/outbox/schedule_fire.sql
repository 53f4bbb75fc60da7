{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/schedules.sql" as schedules with context %}

-- Enqueues a schedule's message and moves the schedule on, if it still stands at due_at and is enabled: of any number
-- of callers exactly one fires a planned time. Who comes while another one is at it waits for the end of that
-- transaction; if it is rolled back the schedule stands where it stood.
-- The message has the planned time in the header scheduled_for, as in 2026-11-19T03:00:00Z.
-- name: not null
-- due_at: the planned time that is fired, as schedule_due answers it; not null
-- next_at: the next one, after due_at and before the year 9000; null is a period after due_at, and for a cron text left to whoever works it out
-- returns: fired, id, message_id; false and nulls if it stands elsewhere, is not enabled or gone
-- errors: PB001
-- locks: group, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.schedule_fire }}
    @name nvarchar(max),
    @due_at datetimeoffset(6),
    @next_at datetimeoffset(6) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @due datetime2(6) = {{ schedules.utc("@due_at") }};
    DECLARE @next datetime2(6) = {{ schedules.utc("@next_at") }};
    DECLARE @schedule_key nvarchar(256);
    DECLARE @now_at datetime2(6);
    DECLARE @fired bit = 0;
    DECLARE @id bigint;
    DECLARE @message_id uniqueidentifier;
    DECLARE @outcome nvarchar(20);
    DECLARE @topic nvarchar(255);
    DECLARE @payload nvarchar(max);
    DECLARE @group_id nvarchar(255);
    DECLARE @priority smallint;
    DECLARE @headers nvarchar(max);
    DECLARE @scheduled_for nvarchar(30);

    IF @name IS NULL
    {{ arguments.reject("name", "must not be null") }}
    IF @due_at IS NULL
    {{ arguments.reject("due_at", "must not be null") }}
    IF @next_at <= @due_at OR @next_at >= CONVERT(datetimeoffset(6), '9000-01-01T00:00:00+00:00')
    {{ arguments.reject("next_at", "must be after due_at, and before the year 9000") }}

    BEGIN TRANSACTION;
    -- No schedule's name is too long for its key.
    IF LEN((@name + N'.') COLLATE Latin1_General_100_BIN2) <= 256
    BEGIN
        SET @schedule_key = @name + N'.';
        SET @now_at = {{ clock.now() }};
        UPDATE s
        SET next_at = ISNULL(@next, DATEADD(SECOND, s.every_seconds, @due)), last_fired_at = @now_at
        FROM {{ box.schedules }} AS s WITH (ROWLOCK, FORCESEEK ({{ key.pk_schedules }} (schedule_key)))
        WHERE s.schedule_key = @schedule_key AND s.next_at = @due AND s.enabled = 1;
        SET @fired = CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END;
    END;
    IF @fired = 1
    BEGIN
        SELECT
            @topic = s.topic, @payload = s.payload, @group_id = s.group_id, @priority = s.priority, @headers = s.headers
        FROM {{ box.schedules }} AS s
        WHERE s.schedule_key = @schedule_key;
        SET @scheduled_for = CONCAT(
            REPLACE(CONVERT(nvarchar(19), @due, 120), N' ', N'T'),
            CASE
                WHEN DATEPART(MICROSECOND, @due) > 0
                    THEN N'.' + RIGHT(N'00000' + CONVERT(nvarchar(6), DATEPART(MICROSECOND, @due)), 6)
            END,
            N'Z'
        );
        SET @headers = JSON_MODIFY(ISNULL(@headers, N'{}'), N'$.scheduled_for', @scheduled_for);
        SET @id = NEXT VALUE FOR {{ box._ids }};
        EXEC {{ box._enqueue }}
            @id = @id OUTPUT, @message_id = @message_id OUTPUT, @outcome = @outcome OUTPUT, @now_at = @now_at,
            @topic = @topic, @payload = @payload, @correlation_id = NULL, @due_at = NULL, @group_id = @group_id,
            @priority = @priority, @dedup_key = NULL, @collapse_key = NULL, @expires_at = NULL, @headers = @headers,
            @created_at = @now_at;
    END;
    COMMIT TRANSACTION;

    SELECT @fired AS fired, @id AS id, @message_id AS message_id;
END;
