{% import "macros/arguments.sql" as arguments with context %}

-- Changes one setting of the box, from the next call of any routine on.
-- name: dedup_window_seconds, max_attempts, backoff_base_seconds, backoff_cap_seconds or notify
-- value: seconds from 0 to 1000000000 (the backoff's above 0), attempts from 0 (no limit) to 1000000, notify on or off
-- returns: name, value
-- errors: PB001
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.configure }}
    @name nvarchar(max),
    @value nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    -- Key form, so that neither case nor trailing blanks are passed over.
    DECLARE @key nvarchar(max) = @name + N'.';
    DECLARE @point int = CHARINDEX(N'.', @value + N'.');

    IF @key IS NULL OR @key COLLATE Latin1_General_100_BIN2 NOT IN (
        N'dedup_window_seconds.', N'max_attempts.', N'backoff_base_seconds.', N'backoff_cap_seconds.', N'notify.'
    )
    {{ arguments.reject(
        "name", "must be dedup_window_seconds, max_attempts, backoff_base_seconds, backoff_cap_seconds or notify"
    ) }}
    IF @value IS NULL
    {{ arguments.reject("value", "must not be null") }}
    IF @name = N'notify'
    BEGIN
        IF (@value + N'.') COLLATE Latin1_General_100_BIN2 NOT IN (N'on.', N'off.')
        {{ arguments.reject("value", "must be on or off") | indent(4) }}
    END;
    IF @name <> N'notify'
    BEGIN
        IF @value COLLATE Latin1_General_100_BIN2 LIKE N'%[^0-9.]%'
            OR @point NOT BETWEEN 2 AND 11
            OR CHARINDEX(N'.', @value, @point + 1) > 0
            OR LEN(@value) = @point
            OR LEN(@value) > @point + 6
        {{ arguments.reject("value", "must be a plain number") | indent(4) }}
        IF @name = N'max_attempts' AND (CHARINDEX(N'.', @value) > 0 OR CONVERT(float, @value) > 1000000)
        {{ arguments.reject("value", "must be a whole number from 0 to 1000000") | indent(4) }}
        IF CONVERT(float, @value) > 1000000000 OR (LEFT(@name, 7) = N'backoff' AND CONVERT(float, @value) = 0)
        {{ arguments.reject("value", "must be at most 1000000000, and above 0 for the backoff") | indent(4) }}
    END;

    UPDATE {{ box.settings }} SET value = @value WHERE name = @name;

    SELECT s.name, s.value
    FROM {{ box.settings }} AS s
    WHERE s.name = @name;
END;
