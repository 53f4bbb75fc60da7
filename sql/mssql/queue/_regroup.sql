-- after: _probe

-- Gives each of these groups that nobody holds the ticket it is due: now, or when its head's time comes. A group
-- without members needs none, for whoever is just adding one brings a ticket along. What somebody else has locked,
-- and everything under an older snapshot, is looked at again later instead: what shows now does not settle it.
-- returns: none
-- errors: none
-- locks: group
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._regroup }}
    @groups nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    -- What a group has is read as it is now, also for a caller under SNAPSHOT. Babelfish cannot change over.
    IF SERVERPROPERTY('Babelfish') IS NULL
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @group_key nvarchar(256);
    DECLARE @key bigint;
    DECLARE @resource nvarchar(255);
    DECLARE @got int;
    DECLARE @busy nvarchar(max);
    DECLARE @group TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        is_busy bit NOT NULL
    );
    DECLARE @head TABLE (
        id bigint NOT NULL PRIMARY KEY,
        due_at datetime2(6),
        lane int NOT NULL,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );
    DECLARE @drawn TABLE (ticket bigint NOT NULL PRIMARY KEY);

    IF SERVERPROPERTY('Babelfish') IS NOT NULL AND EXISTS (
        SELECT 1 FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID AND s.transaction_isolation_level > 2
    )
    BEGIN
        EXEC {{ box._probe }} @groups = @groups;
        RETURN;
    END;

    INSERT INTO @group (group_key, is_busy)
    SELECT {{ 'g.group_key' | json_text }}, 0
    FROM OPENJSON(@groups) WITH (group_key nvarchar(max) '$.group_key') AS g;

    SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g);
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
            UPDATE @group SET is_busy = 1 WHERE group_key = @group_key;
        SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g WHERE g.group_key > @group_key);
    END;

    -- Rows that READPAST passes over are members that producers have not committed yet; leases of a group only come
    -- and go under its lock, so they can be read without one. A head that is just being renewed is looked at again.
    INSERT INTO @head (id, due_at, lane, topic_key, group_key)
    SELECT
        h.id,
        CASE WHEN m.id IS NULL THEN DATEADD(MILLISECOND, 200, @now_at) ELSE m.due_at END,
        ISNULL(0 - m.priority, 0), ISNULL(m.topic, N'') + N'.', g.group_key
    FROM @group AS g
    CROSS APPLY (
        SELECT TOP (1) gm.id
        FROM {{ box.group_member }} AS gm WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
        WHERE gm.group_key = g.group_key
        ORDER BY gm.id
    ) AS h
    LEFT JOIN {{ box.message }} AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = h.id
    WHERE g.is_busy = 0
        AND NOT EXISTS (
            SELECT 1 FROM {{ box.lease }} AS l WITH (READUNCOMMITTED) WHERE l.group_key = g.group_key
        );

    INSERT INTO @drawn (ticket)
    SELECT NEXT VALUE FOR {{ box._ids }}
    FROM @head AS h
    WHERE h.due_at IS NULL OR h.due_at <= @now_at;

    INSERT INTO {{ box.ready }} (lane, ticket, topic_key, group_key)
    SELECT d.lane, t.ticket, d.topic_key, d.group_key
    FROM (
        SELECT h.lane, h.topic_key, h.group_key, ROW_NUMBER() OVER (ORDER BY h.id) AS place
        FROM @head AS h
        WHERE h.due_at IS NULL OR h.due_at <= @now_at
    ) AS d
    INNER JOIN (
        SELECT n.ticket, ROW_NUMBER() OVER (ORDER BY n.ticket) AS place
        FROM @drawn AS n
    ) AS t ON t.place = d.place;

    -- The head's id is the number: however many tickets of a waiting group come by, one row waits for it.
    INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic_key, group_key)
    SELECT h.due_at, h.id, h.lane, h.topic_key, h.group_key
    FROM @head AS h
    WHERE h.due_at > @now_at
        AND NOT EXISTS (SELECT 1 FROM {{ box.scheduled }} AS s WHERE s.due_at = h.due_at AND s.no = h.id);

    SET @busy = (SELECT g.group_key FROM @group AS g WHERE g.is_busy = 1 FOR JSON PATH);
    IF @busy IS NOT NULL
        EXEC {{ box._probe }} @groups = @busy;
END;
