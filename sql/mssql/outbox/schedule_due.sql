{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/schedules.sql" as schedules with context %}

-- The schedules whose next time has come, and before them those whose next time is still to be worked out.
-- They are locked until the caller's transaction ends; those that somebody else has locked are passed over.
-- limit: from 1 to 10000
-- returns: name, topic, cron, every_seconds, timezone, next_at, last_fired_at, catch_up, enabled, group_id, priority; by next_at, null first, and name
-- errors: PB001
-- locks: message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.schedule_due }}
    @limit int = 100
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @found TABLE (
        place bigint NOT NULL PRIMARY KEY,
        schedule_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );
    DECLARE @due TABLE (schedule_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);

    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}

    BEGIN TRANSACTION;
    -- Found by the index without a lock, and then locked by the key, as everybody does who changes one.
    INSERT INTO @found (place, schedule_key)
    SELECT TOP (20000) ROW_NUMBER() OVER (ORDER BY s.next_at, s.schedule_key), s.schedule_key
    FROM {{ box.schedules }} AS s
    WHERE s.enabled = 1 AND (s.next_at IS NULL OR s.next_at <= @now_at)
    ORDER BY s.next_at, s.schedule_key
    OPTION (KEEPFIXED PLAN);

    INSERT INTO @due (schedule_key)
    SELECT TOP (@limit) s.schedule_key
    FROM @found AS f
    INNER JOIN {{ box.schedules }} AS s WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON s.schedule_key = f.schedule_key
    WHERE s.enabled = 1 AND (s.next_at IS NULL OR s.next_at <= @now_at)
    ORDER BY f.place
    OPTION (KEEPFIXED PLAN);

    SELECT
        {{ schedules.columns() }}
    FROM @due AS d
    INNER JOIN {{ box.schedules }} AS s WITH (FORCESEEK) ON s.schedule_key = d.schedule_key
    -- Asked once more: Babelfish takes no locks for hints, so that somebody else may have fired it just now.
    WHERE s.enabled = 1 AND (s.next_at IS NULL OR s.next_at <= @now_at)
    ORDER BY s.next_at, s.schedule_key
    OPTION (KEEPFIXED PLAN);
    COMMIT TRANSACTION;
END;
