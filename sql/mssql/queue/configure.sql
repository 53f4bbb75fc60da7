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
    SET NOCOUNT, XACT_ABORT ON;

    -- Key form, so that neither case nor trailing blanks are passed over.
    DECLARE @key nvarchar(max) = @name + N'.';
    DECLARE @point int = CHARINDEX(N'.', @value + N'.');

    IF @key IS NULL OR @key COLLATE Latin1_General_100_BIN2 NOT IN (
        N'dedup_window_seconds.', N'max_attempts.', N'backoff_base_seconds.', N'backoff_cap_seconds.', N'notify.'
    )
        EXEC {{ db._reject }}
            @argument = N'name',
            @rule = N'must be dedup_window_seconds, max_attempts, backoff_base_seconds, backoff_cap_seconds or notify';
    IF @value IS NULL
        EXEC {{ db._reject }} @argument = N'value', @rule = N'must not be null';
    IF @name = N'notify'
    BEGIN
        IF (@value + N'.') COLLATE Latin1_General_100_BIN2 NOT IN (N'on.', N'off.')
            EXEC {{ db._reject }} @argument = N'value', @rule = N'must be on or off';
    END;
    IF @name <> N'notify'
    BEGIN
        IF @value COLLATE Latin1_General_100_BIN2 LIKE N'%[^0-9.]%'
            OR @point NOT BETWEEN 2 AND 11
            OR CHARINDEX(N'.', @value, @point + 1) > 0
            OR LEN(@value) = @point
            OR LEN(@value) > @point + 6
            EXEC {{ db._reject }} @argument = N'value', @rule = N'must be a plain number';
        IF @name = N'max_attempts' AND (CHARINDEX(N'.', @value) > 0 OR CONVERT(float, @value) > 1000000)
            EXEC {{ db._reject }} @argument = N'value', @rule = N'must be a whole number from 0 to 1000000';
        IF CONVERT(float, @value) > 1000000000 OR (LEFT(@name, 7) = N'backoff' AND CONVERT(float, @value) = 0)
            EXEC {{ db._reject }}
                @argument = N'value', @rule = N'must be at most 1000000000, and above 0 for the backoff';
    END;

    UPDATE {{ box.settings }} SET value = @value WHERE name = @name;

    SELECT s.name, s.value
    FROM {{ box.settings }} AS s
    WHERE s.name = @name;
END;
