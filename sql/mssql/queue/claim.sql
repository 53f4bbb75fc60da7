-- after: _bury, _claim_groups, _promote, _reap, _tick, _unpaused

-- Hands out up to batch_size messages under a lease, whole, in claim order.
-- Waits for no other claim and returns no message twice while its lease is good. First brings back a few expired
-- leases and moves what has become due, so a queue that is only claimed from needs no other care.
-- Takes no part in SNAPSHOT or SERIALIZABLE transactions: the one does not see what is held, the other cannot skip.
-- owner_token: not the nil uuid
-- lease_seconds: from 1 to 86400
-- batch_size: from 1 to 10000
-- topics: only these; null for all
{% if kind == "inbox" %}
-- returns: id, message_id, source, topic, payload, hash, group_id, priority, headers, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, locked_until
{% else %}
-- returns: id, message_id, topic, payload, correlation_id, group_id, priority, headers, attempt, created_at, due_at, expires_at, last_error, locked_until
{% endif %}
-- errors: PB001, PB003
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.claim }}
    @owner_token uniqueidentifier,
    @lease_seconds int,
    @batch_size int,
    @topics nvarchar(max) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6);
    DECLARE @until_at datetime2(6);
    DECLARE @key bigint;
    DECLARE @locked int;
    DECLARE @room int;
    DECLARE @marked int = 0;
    DECLARE @more bit;
    DECLARE @took int;
    DECLARE @reach int = 0;
    DECLARE @turn int = 0;
    DECLARE @found_count int = 0;
    DECLARE @open bit = 1;
    DECLARE @limited bit = CASE WHEN @topics IS NULL THEN 0 ELSE 1 END;
    DECLARE @group_count int;
    DECLARE @share int;
    DECLARE @ids nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @allowed nvarchar(max);
    DECLARE @mark uniqueidentifier = NEWID();
    DECLARE @topic TABLE (topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    DECLARE @candidate TABLE (lane int NOT NULL, ticket bigint NOT NULL, PRIMARY KEY (lane, ticket));
    DECLARE @head TABLE (lane int NOT NULL, ticket bigint NOT NULL, PRIMARY KEY (lane, ticket));
    DECLARE @got TABLE (
        lane int NOT NULL,
        ticket bigint NOT NULL,
        id bigint,
        expires_at datetime2(6),
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        PRIMARY KEY (lane, ticket)
    );
    DECLARE @found TABLE (
        turn int NOT NULL,
        lane int NOT NULL,
        ticket bigint NOT NULL,
        id bigint NOT NULL,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        PRIMARY KEY (turn, lane, ticket, id)
    );

    IF @owner_token IS NULL
        OR @owner_token = '00000000-0000-0000-0000-000000000000'
        OR @lease_seconds IS NULL OR @lease_seconds NOT BETWEEN 1 AND 86400
        OR @batch_size IS NULL OR @batch_size NOT BETWEEN 1 AND 10000
        EXEC {{ db._check_owner }} @owner_token = @owner_token, @lease_seconds = @lease_seconds, @batch_size = @batch_size;
    IF ISJSON(@topics) = 0 OR CHARINDEX(N'[', @topics + N'[') > CHARINDEX(N'{', @topics + N'{')
        EXEC {{ db._reject }} @argument = N'topics', @rule = N'must be a JSON array';
    IF EXISTS (
        SELECT 1 FROM sys.dm_exec_sessions AS s WHERE s.session_id = @@SPID AND s.transaction_isolation_level > 3
    )
        THROW 51003, N'claim: needs a READ COMMITTED transaction', 1;

    BEGIN TRANSACTION;
    -- Babelfish passes over no locked row: there one claim at a time takes its rows, lest two wait crosswise.
    IF SERVERPROPERTY('Babelfish') IS NOT NULL
    BEGIN
        SET @key = CONVERT(bigint, CONVERT(binary(8), HASHBYTES(
            'SHA2_256', {{ (schema ~ "." ~ box_name ~ ":claim") | literal }}
        )));
        EXEC sys.sp_executesql
            N'SELECT @locked = COUNT(*) FROM (SELECT pg_catalog.pg_advisory_xact_lock(@key) AS taken) AS l;',
            N'@key bigint, @locked int OUTPUT', @key = @key, @locked = @locked OUTPUT;
    END;
    SET @now_at = {{ db._now }}();
    SET @until_at = DATEADD(SECOND, @lease_seconds, @now_at);
    IF EXISTS (
        SELECT 1
        FROM {{ box.lease }} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
        WHERE l.locked_until < @now_at
    )
        EXEC {{ box._reap }} @batch_size = 100;
    IF EXISTS (
        SELECT 1
        FROM {{ box.scheduled }} AS s WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
        WHERE s.due_at <= @now_at
    )
    BEGIN
        SET @room = CASE WHEN @batch_size > 100 THEN @batch_size ELSE 100 END;
        EXEC {{ box._promote }} @room = @room;
    END;

    IF EXISTS (SELECT 1 FROM {{ box.paused }} AS p)
    BEGIN
        SET @limited = 1;
        IF EXISTS (SELECT 1 FROM {{ box.paused }} AS p WHERE p.topic_key = N'.')
            SET @open = 0;
    END;
    IF @limited = 1 AND @open = 1
    BEGIN
        INSERT INTO @topic (topic_key)
        SELECT u.topic_key
        FROM {{ box._unpaused }} (@topics) AS u;
        SET @allowed = ISNULL((SELECT t.topic_key FROM @topic AS t FOR JSON PATH), N'[]');
    END;

    WHILE @open = 1
    BEGIN
        SET @room = @batch_size - @found_count;
        SET @turn += 1;
        DELETE FROM @head;
        DELETE FROM @got;
        IF @limited = 0
        BEGIN
            INSERT INTO @head (lane, ticket)
            SELECT TOP (@room) r.lane, r.ticket
            FROM {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
            ORDER BY r.lane, r.ticket;
            SET @marked = @@ROWCOUNT;
            SET @more = CASE WHEN @marked = @room THEN 1 ELSE 0 END;
        END
        ELSE
        BEGIN
            -- Each topic's own order, merged; of the candidates only as many are locked as there is room for.
            SET @reach = CASE WHEN @reach = 0 THEN 2 * @room + 20 WHEN @marked < @room THEN 4 * @reach ELSE @reach END;
            DELETE FROM @candidate;
            INSERT INTO @candidate (lane, ticket)
            SELECT TOP (@reach) n.lane, n.ticket
            FROM @topic AS t
            CROSS APPLY (
                SELECT TOP (@reach) c.lane, c.ticket
                FROM {{ box.ready }} AS c WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
                WHERE c.topic_key = t.topic_key
                ORDER BY c.lane, c.ticket
            ) AS n
            ORDER BY n.lane, n.ticket;
            -- Somebody may have had everything within reach locked while more lies beyond it.
            SET @more = CASE WHEN @@ROWCOUNT = @reach THEN 1 ELSE 0 END;

            INSERT INTO @head (lane, ticket)
            SELECT TOP (@room) r.lane, r.ticket
            FROM @candidate AS c
            INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                ON r.lane = c.lane AND r.ticket = c.ticket
            ORDER BY c.lane, c.ticket;
            SET @marked = @@ROWCOUNT;
            IF @marked = @room
                SET @more = 1;
        END;

        -- What the deletion answers is what this claim has, also where hints are not honoured.
        DELETE r
        OUTPUT
            deleted.lane, deleted.ticket, deleted.id, deleted.expires_at, deleted.topic_key, deleted.group_key
        INTO @got (lane, ticket, id, expires_at, topic_key, group_key)
        FROM @head AS h
        INNER JOIN {{ box.ready }} AS r WITH (ROWLOCK, FORCESEEK) ON r.lane = h.lane AND r.ticket = h.ticket;
        SET @took = @@ROWCOUNT;

        IF EXISTS (SELECT 1 FROM @got AS g WHERE g.group_key IS NULL AND g.expires_at <= @now_at)
        BEGIN
            SET @ids = (
                SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), COALESCE(g.id, g.ticket)), N',') + N']'
                FROM @got AS g
                WHERE g.group_key IS NULL AND g.expires_at <= @now_at
            );
            EXEC {{ box._bury }} @ids = @ids, @error = NULL, @expired = 1;
        END;

        INSERT INTO @found (turn, lane, ticket, id, topic_key)
        SELECT @turn, g.lane, g.ticket, COALESCE(g.id, g.ticket), g.topic_key
        FROM @got AS g
        WHERE g.group_key IS NULL AND (g.expires_at IS NULL OR g.expires_at > @now_at);
        SET @found_count += @@ROWCOUNT;

        -- A group's ticket becomes the messages at its head, as many as leave each other ticket a place.
        SET @group_count = (SELECT COUNT(DISTINCT g.group_key) FROM @got AS g WHERE g.group_key IS NOT NULL);
        IF @group_count > 0
        BEGIN
            SET @groups = (
                SELECT DISTINCT g.group_key FROM @got AS g WHERE g.group_key IS NOT NULL FOR JSON PATH
            );
            SET @share = (@batch_size - @found_count) / @group_count;
            EXEC {{ box._claim_groups }}
                @groups = @groups, @share = @share, @allowed = @allowed, @owner_token = @mark, @until_at = @until_at;

            INSERT INTO @found (turn, lane, ticket, id, topic_key, group_key)
            SELECT @turn, MIN(g.lane), MIN(g.ticket), l.id, l.topic_key, l.group_key
            FROM @got AS g
            INNER JOIN {{ box.lease }} AS l WITH (READUNCOMMITTED) ON l.group_key = g.group_key
            WHERE l.owner_token = @mark
                AND NOT EXISTS (SELECT 1 FROM @found AS f WHERE f.id = l.id)
            GROUP BY l.id, l.topic_key, l.group_key;
            SET @found_count += @@ROWCOUNT;
        END;

        -- Done when full, or when nothing is left that others have not taken.
        IF @found_count >= @batch_size OR (@more = 0 AND @took = @marked)
            SET @open = 0;
    END;

    IF @found_count > 0
    BEGIN
        SET @until_at = DATEADD(SECOND, @lease_seconds, {{ db._now }}());
        INSERT INTO {{ box.lease }} (id, owner_token, locked_until, topic_key, group_key)
        SELECT f.id, @owner_token, @until_at, f.topic_key, f.group_key
        FROM @found AS f
        WHERE f.group_key IS NULL;

        UPDATE l
        SET owner_token = @owner_token, locked_until = @until_at
        FROM @found AS f
        INNER JOIN {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK) ON l.id = f.id
        WHERE f.group_key IS NOT NULL AND l.owner_token = @mark;
    END;
    -- Now and then somebody folds the tally.
    IF RAND() < 0.03
        EXEC {{ box._tick }};
    COMMIT TRANSACTION;

    SELECT
{% if kind == "inbox" %}
        m.id,
        LEFT(m.message_id_key, LEN(m.message_id_key) - 1) AS message_id,
        LEFT(m.source_key, LEN(m.source_key) - 1) AS source,
        m.topic, m.payload, m.hash, m.group_id, m.priority, m.headers, m.attempt,
        m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error, @until_at AS locked_until
{% else %}
        m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.headers, m.attempt,
        m.created_at, m.due_at, m.expires_at, m.last_error, @until_at AS locked_until
{% endif %}
    FROM @found AS f
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = f.id
    ORDER BY f.turn, f.lane, f.ticket, f.id;
END;
