-- Takes messages out of where they wait: ready, scheduled or a group. A message waits in exactly one place, and
-- whoever takes its row there has it; what another transaction is just taking is passed over, nobody waits.
-- returns: bigint[]; here how many were taken
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._withdraw }}
    @ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    -- Rows can only be skipped under READ COMMITTED. Babelfish cannot change over, and does not skip.
    IF SERVERPROPERTY('Babelfish') IS NULL
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @taken int = 0;
    DECLARE @group_key nvarchar(256);
    DECLARE @key bigint;
    DECLARE @resource nvarchar(255);
    DECLARE @got int;
    DECLARE @place TABLE (
        id bigint NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        due_at datetime2(6),
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @returned TABLE (id bigint NOT NULL PRIMARY KEY, lane int NOT NULL, ticket bigint NOT NULL);

    INSERT INTO @place (id, lane, due_at, group_key)
    SELECT m.id, 0 - m.priority, m.due_at, m.group_id + N'.'
    FROM OPENJSON(@ids) AS j
    INNER JOIN {{ box.message }} AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON m.id = CONVERT(bigint, j.value);

    DELETE r
    FROM @place AS p
    INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.lane = p.lane AND r.ticket = p.id
    WHERE p.group_key IS NULL AND r.id IS NULL AND r.group_key IS NULL;
    SET @taken += @@ROWCOUNT;

    -- Found through the index without keeping locks, then locked by key: in the same order as a claim does.
    INSERT INTO @returned (id, lane, ticket)
    SELECT r.id, r.lane, r.ticket
    FROM @place AS p
    INNER JOIN {{ box.ready }} AS r WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) ON r.id = p.id;

    DELETE r
    FROM @returned AS t
    INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.lane = t.lane AND r.ticket = t.ticket
    WHERE r.id = t.id;
    SET @taken += @@ROWCOUNT;

    DELETE s
    FROM @place AS p
    INNER JOIN {{ box.scheduled }} AS s WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON s.due_at = p.due_at AND s.no = p.id
    WHERE s.id = p.id;
    SET @taken += @@ROWCOUNT;

    -- Members go only under their group's lock.
    SET @group_key = (SELECT MIN(p.group_key) FROM @place AS p WHERE p.group_key IS NOT NULL);
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
        IF @got >= 0
        BEGIN
            DELETE gm
            FROM @place AS p
            INNER JOIN {{ box.group_member }} AS gm WITH (ROWLOCK, FORCESEEK)
                ON gm.group_key = p.group_key AND gm.id = p.id
            WHERE p.group_key = @group_key;
            SET @taken += @@ROWCOUNT;
        END;
        SET @group_key = (SELECT MIN(p.group_key) FROM @place AS p WHERE p.group_key > @group_key);
    END;
    RETURN @taken;
END;
