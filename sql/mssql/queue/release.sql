-- after: _lock_groups, _put_back

-- Hands messages back at once, with no attempt counted: a worker that shuts down, or changed its mind.
-- owner_token: not the nil uuid
-- ids: not null
-- returns: affected
-- errors: PB001
-- locks: group, lease
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.release }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @affected int;
    DECLARE @gone_ids nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);

    IF @owner_token IS NULL
        OR @owner_token = '00000000-0000-0000-0000-000000000000'
        OR @ids IS NULL
        OR ISJSON(@ids) = 0
        OR EXISTS (SELECT 1 FROM OPENJSON(@ids) AS j WHERE j.type <> 0 AND TRY_CONVERT(bigint, j.value) IS NULL)
        OR CHARINDEX(N'[', @ids + N'[') > CHARINDEX(N'{', @ids + N'{')
        EXEC {{ db._check_settling }} @owner_token = @owner_token, @ids = @ids;
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
        SET @gone_ids = (SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g);
        EXEC {{ box._put_back }} @ids = @gone_ids;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
