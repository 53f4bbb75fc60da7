-- after: _bury, _probe, _regroup

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}

-- Turns tickets of groups, just taken, into the messages at their heads: up to share of each, in order, none
-- behind one that is waiting. Whoever has the group's lock may lease its members; nobody waits for it.
-- Messages past their time at a head are buried on the way, some two thousand of all groups together.
-- groups: whose tickets the caller has taken, a JSON array of objects with group_key
-- allowed: the topics the caller may hand out, likewise with topic_key; null for all. Paused ones wait anyway.
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
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @group_key nvarchar(256);
    DECLARE @group_count int;
    DECLARE @reach int = @share;
    DECLARE @more int;
    DECLARE @missed int;
    DECLARE @rest nvarchar(max);
    DECLARE @overdue nvarchar(max);
    DECLARE @buried int = 0;
    DECLARE @group TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        is_busy bit NOT NULL,
        is_held bit NOT NULL,
        is_settled bit NOT NULL
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
    DECLARE @end TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        id bigint NOT NULL
    );
    DECLARE @gone TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        id bigint NOT NULL,
        PRIMARY KEY (group_key, id)
    );
    DECLARE @surplus TABLE (lane int NOT NULL, ticket bigint NOT NULL, PRIMARY KEY (lane, ticket));

    INSERT INTO @group (group_key, is_busy, is_held, is_settled)
    SELECT {{ 'g.group_key' | json_text }}, 0, 0, 0
    FROM OPENJSON(@groups) WITH (group_key nvarchar(max) '$.group_key') AS g;
    SET @group_count = @@ROWCOUNT;
    SET @more = 2000 / @group_count;

    INSERT INTO @topic (topic_key)
    SELECT {{ 't.topic_key' | json_text }}
    FROM OPENJSON(@allowed) WITH (topic_key nvarchar(max) '$.topic_key') AS t;

    {{ groups.attempt_all() }}
    SET @rest = (SELECT g.group_key FROM @group AS g WHERE g.is_busy = 1 FOR JSON PATH);
    IF @rest IS NOT NULL
        EXEC {{ box._probe }} @groups = @rest;
    DELETE FROM @group WHERE is_busy = 1;

    -- All tickets of the group that are here now go, for the group is looked at behind this: whoever brought one
    -- shows then. Found without keeping locks, then locked by key. A burst of single enqueues leaves one each.
    INSERT INTO @surplus (lane, ticket)
    SELECT TOP (1000) r.lane, r.ticket
    FROM @group AS g
    INNER JOIN {{ box.ready }} AS r WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.group_key = g.group_key AND r.group_key IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    DELETE r
    FROM @surplus AS s
    INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.lane = s.lane AND r.ticket = s.ticket
    WHERE r.group_key IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    -- Somebody's: settling the group puts out the next ticket.
    UPDATE g
    SET is_held = 1
    FROM @group AS g
    WHERE {{ groups.is_held("g.group_key") | indent(4) }}
    OPTION (KEEPFIXED PLAN);

    -- The members are read by their committed versions: one that is merely locked is not passed over. A message
    -- that is just being renewed waits. Where the time of some is over, more are read, once.
    WHILE @reach > 0
    BEGIN
        DELETE FROM @head;
        INSERT INTO @head (group_key, id, topic_key, is_overdue, is_waiting)
        SELECT
            g.group_key, h.id, ISNULL(m.topic, N'') + N'.',
            CASE WHEN m.expires_at <= @now_at THEN 1 ELSE 0 END,
            CASE
                WHEN m.id IS NULL THEN 1
                WHEN m.expires_at <= @now_at THEN 0
                WHEN m.due_at > @now_at THEN 1
                WHEN @allowed IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @topic AS t WHERE t.topic_key = m.topic + N'.')
                    THEN 1
                WHEN EXISTS (SELECT 1 FROM {{ box.paused }} AS p WHERE p.topic_key = m.topic + N'.') THEN 1
                ELSE 0
            END
        FROM @group AS g
        CROSS APPLY (
            SELECT TOP (@reach) gm.id
            FROM {{ box.group_member }} AS gm WITH (FORCESEEK)
            WHERE gm.group_key = g.group_key
            ORDER BY gm.id
        ) AS h
        LEFT JOIN {{ box.message }} AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = h.id
        WHERE g.is_held = 0
        OPTION (KEEPFIXED PLAN);

        SET @reach = CASE
            WHEN @reach = @share AND EXISTS (SELECT 1 FROM @head AS h WHERE h.is_overdue = 1) THEN @share + @more
            ELSE 0
        END;
    END;

    -- The first that waits ends what may be taken of its group, and so does the first beyond the share.
    INSERT INTO @end (group_key, id)
    SELECT n.group_key, MIN(n.id)
    FROM (
        SELECT
            h.group_key, h.id, h.is_overdue, h.is_waiting,
            SUM(1 - CONVERT(int, h.is_overdue)) OVER (PARTITION BY h.group_key ORDER BY h.id ROWS UNBOUNDED PRECEDING)
                AS place
        FROM @head AS h
    ) AS n
    WHERE n.is_waiting = 1 OR (n.is_overdue = 0 AND n.place > @share)
    GROUP BY n.group_key;

    DELETE h
    FROM @end AS e
    INNER JOIN @head AS h ON h.group_key = e.group_key AND h.id >= e.id;

    DELETE gm
    OUTPUT deleted.group_key, deleted.id INTO @gone (group_key, id)
    FROM @head AS h
    INNER JOIN {{ box.group_member }} AS gm WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON gm.group_key = h.group_key AND gm.id = h.id
    OPTION (KEEPFIXED PLAN);
    SET @missed = (SELECT COUNT(*) FROM @head AS h) - @@ROWCOUNT;

    -- One that somebody holds nevertheless must not be overtaken: what is behind it goes back.
    IF @missed > 0
    BEGIN
        DELETE FROM @end;
        INSERT INTO @end (group_key, id)
        SELECT h.group_key, MIN(h.id)
        FROM @head AS h
        WHERE NOT EXISTS (SELECT 1 FROM @gone AS n WHERE n.group_key = h.group_key AND n.id = h.id)
        GROUP BY h.group_key;

        INSERT INTO {{ box.group_member }} (group_key, id)
        SELECT n.group_key, n.id
        FROM @end AS e
        INNER JOIN @gone AS n ON n.group_key = e.group_key AND n.id > e.id
        OPTION (KEEPFIXED PLAN);

        DELETE n
        FROM @end AS e
        INNER JOIN @gone AS n ON n.group_key = e.group_key AND n.id > e.id;

        SET @rest = (SELECT e.group_key FROM @end AS e FOR JSON PATH);
        EXEC {{ box._probe }} @groups = @rest;
        UPDATE g
        SET is_settled = 1
        FROM @end AS e
        INNER JOIN @group AS g ON g.group_key = e.group_key;
    END;

    SELECT @overdue = {{ arguments.array_of("n.id") }}, @buried = COUNT(*)
    FROM @gone AS n
    INNER JOIN @head AS h ON h.group_key = n.group_key AND h.id = n.id
    WHERE h.is_overdue = 1;
    IF @overdue IS NOT NULL
        EXEC {{ box._bury }} @ids = @overdue, @error = NULL, @expired = 1;

    INSERT INTO {{ box.lease }} (id, owner_token, locked_until, topic_key, group_key)
    SELECT h.id, @owner_token, @until_at, h.topic_key, h.group_key
    FROM @gone AS n
    INNER JOIN @head AS h ON h.group_key = n.group_key AND h.id = n.id
    WHERE h.is_overdue = 0
    OPTION (KEEPFIXED PLAN);

    -- A group of which nothing was leased keeps waiting, in the place its head calls for.
    UPDATE g
    SET is_settled = 1
    FROM @group AS g
    WHERE EXISTS (
        SELECT 1
        FROM @gone AS n
        INNER JOIN @head AS h ON h.group_key = n.group_key AND h.id = n.id
        WHERE n.group_key = g.group_key AND h.is_overdue = 0
    );
    SET @rest = (SELECT g.group_key FROM @group AS g WHERE g.is_held = 0 AND g.is_settled = 0 FOR JSON PATH);
    IF @rest IS NOT NULL
        EXEC {{ box._regroup }} @groups = @rest;

    -- Nothing was done with a group that is somebody's, so its lock need not last as long as this transaction.
    SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g WHERE g.is_held = 1);
    WHILE @group_key IS NOT NULL AND SERVERPROPERTY('Babelfish') IS NULL
    BEGIN
        SET @lock_number = {{ locks.number(locks.group("@group_key")) }};
        SET @lock_name = CONVERT(nvarchar(255), @lock_number);
        EXEC sys.sp_releaseapplock @Resource = @lock_name, @LockOwner = N'Transaction';
        SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g WHERE g.is_held = 1 AND g.group_key > @group_key);
    END;
    RETURN @buried;
END;
