-- after: _bury, _probe, _regroup

-- Turns tickets of groups, just taken, into the messages at their heads: up to share of each, in order, none
-- behind one that is waiting. Whoever has the group's lock may lease its members; nobody waits for it.
-- groups: whose tickets the caller has taken, a JSON array of objects with group_key
-- allowed: the topics the caller may hand out, likewise with topic_key; null for all
-- owner_token: a mark of the caller's own, under which the leases are inserted; it finds them by that, and then
-- makes them the owner's
-- until_at: the end of the leases
-- returns: group_id, id, topic; as leases
-- errors: none
-- locks: group, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._claim_groups }}
    @groups nvarchar(max),
    @share int,
    @allowed nvarchar(max),
    @owner_token uniqueidentifier,
    @until_at datetime2(6)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @group_key nvarchar(256);
    DECLARE @key bigint;
    DECLARE @resource nvarchar(255);
    DECLARE @got int;
    DECLARE @tried int = 0;
    DECLARE @rest nvarchar(max);
    DECLARE @overdue nvarchar(max);
    DECLARE @group TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        is_busy bit NOT NULL,
        is_held bit NOT NULL
    );
    DECLARE @topic TABLE (topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    DECLARE @head TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        id bigint NOT NULL,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        is_overdue bit NOT NULL,
        is_waiting bit NOT NULL,
        PRIMARY KEY (group_key, id)
    );
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );
    DECLARE @surplus TABLE (lane int NOT NULL, ticket bigint NOT NULL, PRIMARY KEY (lane, ticket));

    INSERT INTO @group (group_key, is_busy, is_held)
    SELECT {{ 'g.group_key' | json_text }}, 1, 0
    FROM OPENJSON(@groups) WITH (group_key nvarchar(max) '$.group_key') AS g;

    INSERT INTO @topic (topic_key)
    SELECT {{ 't.topic_key' | json_text }}
    FROM OPENJSON(@allowed) WITH (topic_key nvarchar(max) '$.topic_key') AS t;

    -- Not more than 500 of them a claim: every lock takes a place in memory.
    SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g);
    WHILE @group_key IS NOT NULL AND @tried < 500
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
            UPDATE @group SET is_busy = 0 WHERE group_key = @group_key;
        SET @tried += 1;
        SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g WHERE g.group_key > @group_key);
    END;

    SET @rest = (SELECT g.group_key FROM @group AS g WHERE g.is_busy = 1 FOR JSON PATH);
    IF @rest IS NOT NULL
        EXEC {{ box._probe }} @groups = @rest;
    DELETE FROM @group WHERE is_busy = 1;
    UPDATE g
    SET is_held = 1
    FROM @group AS g
    WHERE EXISTS (SELECT 1 FROM {{ box.lease }} AS l WITH (READUNCOMMITTED) WHERE l.group_key = g.group_key);

    -- Rows that READPAST passes over are members that producers have not committed yet; a member whose message is
    -- just being renewed waits.
    INSERT INTO @head (group_key, id, topic_key, is_overdue, is_waiting)
    SELECT
        g.group_key, h.id, ISNULL(m.topic, N'') + N'.',
        CASE WHEN m.expires_at <= @now_at THEN 1 ELSE 0 END,
        CASE
            WHEN m.id IS NULL OR m.due_at > @now_at THEN 1
            WHEN @allowed IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @topic AS t WHERE t.topic_key = m.topic + N'.') THEN 1
            ELSE 0
        END
    FROM @group AS g
    CROSS APPLY (
        SELECT TOP (@share) gm.id
        FROM {{ box.group_member }} AS gm WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
        WHERE gm.group_key = g.group_key
        ORDER BY gm.id
    ) AS h
    LEFT JOIN {{ box.message }} AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = h.id
    WHERE g.is_held = 0;

    -- A member that waits holds up those behind it, unless its time is over.
    DELETE h
    FROM @head AS h
    INNER JOIN (
        SELECT b.group_key, MIN(b.id) AS id
        FROM @head AS b
        WHERE b.is_waiting = 1 AND b.is_overdue = 0
        GROUP BY b.group_key
    ) AS w ON w.group_key = h.group_key
    WHERE h.id >= w.id;

    DELETE gm
    OUTPUT deleted.id, deleted.group_key INTO @gone (id, group_key)
    FROM @head AS h
    INNER JOIN {{ box.group_member }} AS gm WITH (ROWLOCK, FORCESEEK) ON gm.group_key = h.group_key AND gm.id = h.id;

    SET @overdue = (
        SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']'
        FROM @gone AS g
        INNER JOIN @head AS h ON h.group_key = g.group_key AND h.id = g.id
        WHERE h.is_overdue = 1
    );
    IF @overdue IS NOT NULL
        EXEC {{ box._bury }} @ids = @overdue, @error = NULL, @expired = 1;

    -- Groups whose head may not be handed out now keep waiting, each in the place its head calls for.
    UPDATE g
    SET is_held = 1
    FROM @group AS g
    WHERE EXISTS (
        SELECT 1
        FROM @gone AS n
        INNER JOIN @head AS h ON h.group_key = n.group_key AND h.id = n.id
        WHERE n.group_key = g.group_key AND h.is_overdue = 0
    );
    SET @rest = (SELECT g.group_key FROM @group AS g WHERE g.is_held = 0 FOR JSON PATH);
    IF @rest IS NOT NULL
        EXEC {{ box._regroup }} @groups = @rest;

    -- A ticket for a group that somebody holds is one too many: settling the group puts out the next. A burst of
    -- single enqueues leaves one each, so the others go too. Found without keeping locks, then locked by key.
    INSERT INTO @surplus (lane, ticket)
    SELECT TOP (1000) r.lane, r.ticket
    FROM @group AS g
    INNER JOIN {{ box.ready }} AS r WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) ON r.group_key = g.group_key
    WHERE g.is_held = 1;

    DELETE r
    FROM @surplus AS s
    INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.lane = s.lane AND r.ticket = s.ticket
    WHERE r.group_key IS NOT NULL;

    INSERT INTO {{ box.lease }} (id, owner_token, locked_until, topic_key, group_key)
    SELECT h.id, @owner_token, @until_at, h.topic_key, h.group_key
    FROM @gone AS g
    INNER JOIN @head AS h ON h.group_key = g.group_key AND h.id = g.id
    WHERE h.is_overdue = 0;
END;
