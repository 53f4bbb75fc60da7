-- after: _lock_groups, _put_back

-- Gives messages back for another try: one attempt counted, claimable again after the delay or the backoff,
-- behind what was claimable before. Touches only what this owner holds. Does not look at max_attempts.
-- owner_token: not the nil uuid
-- ids: not null
-- last_error: recorded unless null or empty
-- delay_seconds: above 0, at most 1000000000; null for the backoff, min(backoff_base * 2^attempt, backoff_cap)
-- returns: affected
-- errors: PB001
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.abandon }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max),
    @last_error nvarchar(max) = NULL,
    @delay_seconds decimal(12, 3) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6);
    DECLARE @base float;
    DECLARE @cap float;
    DECLARE @affected int;
    DECLARE @gone_ids nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @tried TABLE (id bigint NOT NULL PRIMARY KEY, attempt int NOT NULL, wait_seconds float NOT NULL);

    IF @owner_token IS NULL
        OR @owner_token = '00000000-0000-0000-0000-000000000000'
        OR @ids IS NULL
        OR ISJSON(@ids) = 0
        OR EXISTS (SELECT 1 FROM OPENJSON(@ids) AS j WHERE j.type <> 0 AND TRY_CONVERT(bigint, j.value) IS NULL)
        OR CHARINDEX(N'[', @ids + N'[') > CHARINDEX(N'{', @ids + N'{')
        EXEC {{ db._check_settling }} @owner_token = @owner_token, @ids = @ids;
    IF @delay_seconds <= 0 OR @delay_seconds > 1000000000
        EXEC {{ db._reject }} @argument = N'delay_seconds', @rule = N'must be above 0 and at most 1000000000';
    INSERT INTO @wanted (id)
    SELECT DISTINCT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j
    WHERE j.value IS NOT NULL;

    BEGIN TRANSACTION;
    EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;

    -- Without a join: on Babelfish that would lose the leases that somebody has just extended or held.
    DELETE l
    OUTPUT deleted.id INTO @gone (id)
    FROM {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK)
    WHERE l.owner_token = @owner_token AND l.id IN (SELECT w.id FROM @wanted AS w);
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        SET @base = (
            SELECT CONVERT(float, s.value) FROM {{ box.settings }} AS s WHERE s.name = N'backoff_base_seconds'
        );
        SET @cap = (SELECT CONVERT(float, s.value) FROM {{ box.settings }} AS s WHERE s.name = N'backoff_cap_seconds');

        INSERT INTO @tried (id, attempt, wait_seconds)
        SELECT
            m.id,
            m.attempt + 1,
            CASE
                WHEN @delay_seconds IS NOT NULL THEN CONVERT(float, @delay_seconds)
                WHEN m.attempt >= 64 OR @base * POWER(CONVERT(float, 2), m.attempt + 1) > @cap THEN @cap
                ELSE @base * POWER(CONVERT(float, 2), m.attempt + 1)
            END
        FROM @gone AS g
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id;

        SET @now_at = {{ db._now }}();
        UPDATE m
        SET
            attempt = t.attempt,
            due_at = DATEADD(
                MICROSECOND, CONVERT(int, (t.wait_seconds - FLOOR(t.wait_seconds)) * 1000000),
                DATEADD(SECOND, CONVERT(int, FLOOR(t.wait_seconds)), @now_at)
            ),
            last_error = CASE WHEN LEN(@last_error + N'.') > 1 THEN @last_error ELSE m.last_error END
        FROM @tried AS t
        INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = t.id;

        SET @gone_ids = (SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g);
        EXEC {{ box._put_back }} @ids = @gone_ids;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
