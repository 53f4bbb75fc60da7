-- Locks the groups of these leased messages, before their leases are touched, and waits for them, in the order of
-- their names: only whoever has a group's lock may change who holds it.
-- returns: text[]; here nothing, the caller sees the groups in what it deletes
-- errors: none
-- locks: group
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._lock_groups }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @group_key nvarchar(256);
    DECLARE @key bigint;
    DECLARE @resource nvarchar(255);
    DECLARE @got int;
    DECLARE @group TABLE (group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);

    INSERT INTO @wanted (id)
    SELECT DISTINCT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j
    WHERE j.value IS NOT NULL;

    INSERT INTO @group (group_key)
    SELECT DISTINCT l.group_key
    FROM @wanted AS w
    INNER JOIN {{ box.lease }} AS l WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON l.id = w.id
    WHERE l.owner_token = @owner_token AND l.group_key IS NOT NULL;

    SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g);
    WHILE @group_key IS NOT NULL
    BEGIN
        SET @key = CONVERT(bigint, CONVERT(binary(8), HASHBYTES(
            'SHA2_256', CONCAT({{ (schema ~ "." ~ box_name ~ "::") | literal }}, @group_key)
        )));
        SET @resource = CONVERT(nvarchar(255), @key);
        IF SERVERPROPERTY('Babelfish') IS NULL
            EXEC @got = sys.sp_getapplock
                @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;
        ELSE
            EXEC sys.sp_executesql
                N'SELECT @got = COUNT(*) FROM (SELECT pg_catalog.pg_advisory_xact_lock(@key) AS taken) AS l;',
                N'@key bigint, @got int OUTPUT', @key = @key, @got = @got OUTPUT;
        IF @got < 0
            THROW 50001, N'group: chosen as the victim of a deadlock, try again', 1;
        SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g WHERE g.group_key > @group_key);
    END;
END;
