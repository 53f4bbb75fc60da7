-- after: _bury, _put_back

-- Takes back up to batch_size leases that have run out, skipping what anybody else has locked. Each counts an
-- attempt; a message whose attempts thereby reach max_attempts dies, so that one that kills its worker every
-- time does not come back for ever.
-- returns: integer
-- errors: none
-- locks: group, lease, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._reap }}
    @batch_size int
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @limit_attempts int = 0;
    DECLARE @affected int;
    DECLARE @group_key nvarchar(256);
    DECLARE @key bigint;
    DECLARE @resource nvarchar(255);
    DECLARE @got int;
    DECLARE @ids nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @error nvarchar(max);
    DECLARE @candidate TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        is_dying bit
    );

    -- Found through the index without keeping locks, then locked by id: in the same order as a settlement does.
    INSERT INTO @candidate (id, group_key)
    SELECT TOP (@batch_size) l.id, l.group_key
    FROM {{ box.lease }} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE l.locked_until < @now_at
    ORDER BY l.locked_until;
    IF @@ROWCOUNT = 0
        RETURN 0;

    SET @group_key = (SELECT MIN(c.group_key) FROM @candidate AS c WHERE c.group_key IS NOT NULL);
    WHILE @group_key IS NOT NULL
    BEGIN
        SET @key = CONVERT(bigint, CONVERT(binary(8), HASHBYTES(
            'SHA2_256', CONCAT({{ (schema ~ "." ~ box_name ~ "::") | literal }}, @group_key)
        )));
        SET @resource = CONVERT(nvarchar(255), @key);
        IF SERVERPROPERTY('Babelfish') IS NULL
            EXEC @got = sys.sp_getapplock
                @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
        ELSE
            EXEC sys.sp_executesql
                N'SELECT @got = CONVERT(int, pg_catalog.pg_try_advisory_xact_lock(@key)) - 1;',
                N'@key bigint, @got int OUTPUT', @key = @key, @got = @got OUTPUT;
        IF @got < 0
            DELETE FROM @candidate WHERE group_key = @group_key;
        SET @group_key = (SELECT MIN(c.group_key) FROM @candidate AS c WHERE c.group_key > @group_key);
    END;

    DELETE l
    OUTPUT deleted.id, deleted.group_key INTO @gone (id, group_key)
    FROM @candidate AS c
    INNER JOIN {{ box.message }} AS m WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = c.id
    INNER JOIN {{ box.lease }} AS l WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON l.id = c.id
    WHERE l.locked_until < @now_at;
    SET @affected = @@ROWCOUNT;
    IF @affected = 0
        RETURN 0;

    SELECT @limit_attempts = CONVERT(int, s.value)
    FROM {{ box.settings }} AS s
    WHERE s.name = N'max_attempts';

    UPDATE m
    SET attempt = m.attempt + 1
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id;

    UPDATE g
    SET is_dying = CASE WHEN @limit_attempts > 0 AND m.attempt >= @limit_attempts THEN 1 ELSE 0 END
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m ON m.id = g.id;

    SET @ids = (
        SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g WHERE g.is_dying = 1
    );
    IF @ids IS NOT NULL
    BEGIN
        SET @error = CONCAT(N'the lease expired and the attempts reached max_attempts (', @limit_attempts, N')');
        EXEC {{ box._bury }} @ids = @ids, @error = @error, @expired = 0;
    END;

    SET @ids = (
        SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g WHERE g.is_dying = 0
    );
    IF @ids IS NOT NULL
        EXEC {{ box._put_back }} @ids = @ids;

    -- Putting members back gave their groups a ticket already.
    SET @groups = (
        SELECT DISTINCT g.group_key
        FROM @gone AS g
        WHERE g.group_key IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM @gone AS p WHERE p.group_key = g.group_key AND p.is_dying = 0)
        FOR JSON PATH
    );
    IF @groups IS NOT NULL
        EXEC {{ box._regroup }} @groups = @groups;
    RETURN @affected;
END;
