-- Prolongs leases from now on, and names those that are still this owner's; whatever is missing is lost.
-- owner_token: not the nil uuid
-- ids: not null
-- lease_seconds: from 1 to 86400
-- returns: id, locked_until; in id order
-- errors: PB001
-- locks: lease
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.extend }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max),
    @lease_seconds int
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @until_at datetime2(6);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @kept TABLE (id bigint NOT NULL PRIMARY KEY);

    IF @owner_token IS NULL
        OR @owner_token = '00000000-0000-0000-0000-000000000000'
        OR @ids IS NULL
        OR ISJSON(@ids) = 0
        OR EXISTS (SELECT 1 FROM OPENJSON(@ids) AS j WHERE j.type <> 0 AND TRY_CONVERT(bigint, j.value) IS NULL)
        OR CHARINDEX(N'[', @ids + N'[') > CHARINDEX(N'{', @ids + N'{')
        EXEC {{ db._check_settling }} @owner_token = @owner_token, @ids = @ids;
    IF @lease_seconds IS NULL OR @lease_seconds NOT BETWEEN 1 AND 86400
        EXEC {{ db._reject }} @argument = N'lease_seconds', @rule = N'must be from 1 to 86400';
    INSERT INTO @wanted (id)
    SELECT DISTINCT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j
    WHERE j.value IS NOT NULL;

    BEGIN TRANSACTION;
    -- Locked in id order first; the clock is read behind whatever had to be waited for.
    INSERT INTO @kept (id)
    SELECT l.id
    FROM @wanted AS w
    INNER JOIN {{ box.lease }} AS l WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON l.id = w.id
    WHERE l.owner_token = @owner_token
    ORDER BY l.id;

    SET @until_at = DATEADD(SECOND, @lease_seconds, {{ db._now }}());
    -- Without a join: on Babelfish that would lose the leases that somebody has just extended or held.
    UPDATE l
    SET locked_until = @until_at
    FROM {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK)
    WHERE l.owner_token = @owner_token AND l.id IN (SELECT k.id FROM @kept AS k);

    SELECT l.id, l.locked_until
    FROM @kept AS k
    INNER JOIN {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK) ON l.id = k.id
    WHERE l.owner_token = @owner_token AND l.locked_until = @until_at
    ORDER BY l.id;
    COMMIT TRANSACTION;
END;
