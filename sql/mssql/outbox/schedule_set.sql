{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}
{% import "macros/schedules.sql" as schedules with context %}

-- Sets a schedule: a message that is enqueued again and again, by a rule or every so many seconds. One of the same name
-- is replaced whole, but keeps its next time if its rule is the same and none is given, and when it last fired.
-- Neither the rule nor the zone is read here: who fires it does, and passes over a schedule that it cannot read.
-- name: 1 to 255 characters
-- topic: 1 to 255 characters
-- payload: not null; may be empty
-- cron: five fields, 1 to 255 characters; this or every_seconds
-- every_seconds: from 1 to 1000000000
-- timezone: of the cron text, an IANA name of 1 to 255 characters
-- next_at: the first planned time, before the year 9000; null is a period from now, and for a cron text left to whoever works it out
-- catch_up: how many missed times are made up for, from 0 to 10000
-- enabled: false keeps it without firing; one that is enabled again begins anew
-- group_id: FIFO key of its messages, 1 to 255 characters
-- priority: of its messages, from -32768 to 32767
-- headers: of its messages, a JSON object
-- returns: name, topic, cron, every_seconds, timezone, next_at, last_fired_at, catch_up, enabled, group_id, priority
-- errors: PB001
-- locks: message
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.schedule_set }}
    @name nvarchar(max),
    @topic nvarchar(max),
    @payload nvarchar(max),
    @cron nvarchar(max) = NULL,
    @every_seconds int = NULL,
    @timezone nvarchar(max) = N'UTC',
    @next_at datetimeoffset(6) = NULL,
    @catch_up int = 1,
    @enabled bit = 1,
    @group_id nvarchar(max) = NULL,
    @priority int = 0,
    @headers nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6);
    DECLARE @schedule_key nvarchar(256);
    DECLARE @first_at datetime2(6);

    SET @priority = ISNULL(@priority, 0);
    SET @timezone = ISNULL(@timezone, N'UTC');
    SET @catch_up = ISNULL(@catch_up, 1);
    SET @enabled = ISNULL(@enabled, 1);
    -- LEN passes over trailing blanks, so an end mark is put behind a text.
    IF @name IS NULL
        OR LEN(@name + N'.') = 1
        OR LEN((@name + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("name", "must have from 1 to 255 characters") }}
    IF EXISTS (
        SELECT 1
        FROM {{ box._valid }} (
            @topic, @payload, NULL, NULL, NULL, @group_id, @priority, NULL, NULL, @headers, NULL, NULL
        ) AS v
        WHERE v.broken IS NOT NULL
    )
    {{ arguments.check_by(box._explain ~ """
            @topic, @payload, NULL, NULL, NULL, @group_id, @priority, NULL, NULL, @headers, NULL, NULL""") }}
    IF (@cron IS NULL AND @every_seconds IS NULL) OR (@cron IS NOT NULL AND @every_seconds IS NOT NULL)
    {{ arguments.reject("cron", "must be given, or every_seconds, and not both") }}
    IF LEN(@cron + N'.') = 1 OR LEN((@cron + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("cron", "must have from 1 to 255 characters") }}
    IF @every_seconds NOT BETWEEN 1 AND 1000000000
    {{ arguments.reject("every_seconds", "must be from 1 to 1000000000") }}
    IF LEN(@timezone + N'.') = 1 OR LEN((@timezone + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("timezone", "must have from 1 to 255 characters") }}
    IF @next_at >= CONVERT(datetimeoffset(6), '9000-01-01T00:00:00+00:00')
    {{ arguments.reject("next_at", "must be of the years 1 to 8999") }}
    IF @catch_up NOT BETWEEN 0 AND 10000
    {{ arguments.reject("catch_up", "must be from 0 to 10000") }}
    SET @schedule_key = @name + N'.';

    BEGIN TRANSACTION;
    {{ locks.wait(locks.key("schedule", "@schedule_key"), "name") }}
    SET @now_at = {{ clock.now() }};
    SET @first_at = ISNULL({{ schedules.utc("@next_at") }}, DATEADD(SECOND, @every_seconds, @now_at));
    UPDATE s
    SET
        topic = @topic,
        payload = @payload,
        cron = @cron,
        every_seconds = @every_seconds,
        timezone = @timezone,
        next_at = CASE
            WHEN @next_at IS NULL
                AND (s.cron = @cron OR s.every_seconds = @every_seconds)
                AND s.timezone = @timezone
                AND (s.enabled = 1 OR @enabled = 0)
                THEN s.next_at
            ELSE @first_at
        END,
        catch_up = @catch_up,
        enabled = @enabled,
        group_id = @group_id,
        priority = @priority,
        headers = @headers
    FROM {{ box.schedules }} AS s WITH (ROWLOCK, FORCESEEK ({{ key.pk_schedules }} (schedule_key)))
    WHERE s.schedule_key = @schedule_key;
    IF @@ROWCOUNT = 0
        INSERT INTO {{ box.schedules }} (
            schedule_key, topic, payload, cron, every_seconds, timezone, next_at, catch_up, enabled, group_id, priority,
            headers
        )
        VALUES (
            @schedule_key, @topic, @payload, @cron, @every_seconds, @timezone, @first_at, @catch_up, @enabled, @group_id,
            @priority, @headers
        );
    COMMIT TRANSACTION;

    SELECT
        {{ schedules.columns() }}
    FROM {{ box.schedules }} AS s
    WHERE s.schedule_key = @schedule_key;
END;
