-- after: _lock_groups, _bury, _regroup

-- Gives messages up for good: they are dead, with the error, until a replay or a discard.
-- owner_token: not the nil uuid
-- ids: not null
-- error: not null
-- returns: affected
-- errors: PB001
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.fail }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max),
    @error nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @affected int;
    DECLARE @gone_ids nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );

    IF @owner_token IS NULL
        OR @owner_token = '00000000-0000-0000-0000-000000000000'
        OR @ids IS NULL
        OR ISJSON(@ids) = 0
        OR EXISTS (SELECT 1 FROM OPENJSON(@ids) AS j WHERE j.type <> 0 AND TRY_CONVERT(bigint, j.value) IS NULL)
        OR CHARINDEX(N'[', @ids + N'[') > CHARINDEX(N'{', @ids + N'{')
        EXEC {{ db._check_settling }} @owner_token = @owner_token, @ids = @ids;
    IF @error IS NULL
        EXEC {{ db._reject }} @argument = N'error', @rule = N'must not be null';
    INSERT INTO @wanted (id)
    SELECT DISTINCT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j
    WHERE j.value IS NOT NULL;

    BEGIN TRANSACTION;
    EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;

    -- Without a join: on Babelfish that would lose the leases that somebody has just extended or held.
    DELETE l
    OUTPUT deleted.id, deleted.group_key INTO @gone (id, group_key)
    FROM {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK)
    WHERE l.owner_token = @owner_token AND l.id IN (SELECT w.id FROM @wanted AS w);
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        SET @gone_ids = (SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g);
        EXEC {{ box._bury }} @ids = @gone_ids, @error = @error, @expired = 0;

        SET @groups = (SELECT DISTINCT g.group_key FROM @gone AS g WHERE g.group_key IS NOT NULL FOR JSON PATH);
        IF @groups IS NOT NULL
            EXEC {{ box._regroup }} @groups = @groups;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
