-- after: _enqueue

-- Takes many messages in, or none if one of them is wrong.
-- messages: a JSON array of objects, whose keys are the arguments of enqueue (hash as hex); others are passed over
-- returns: ordinal, id, outcome, hash_mismatch; one row a record, in their order, ordinal from 1
-- errors: PB001
-- locks: group, message
-- role: producer
CREATE OR ALTER PROCEDURE {{ box.enqueue_many }}
    @messages nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6);
    DECLARE @broken nvarchar(2048);
    DECLARE @tries int = 0;
    DECLARE @is_over bit = 0;
    DECLARE @ids nvarchar(max);
    DECLARE @newest nvarchar(max);
    DECLARE @removed int;
    DECLARE @place int;
    DECLARE @ordinal int;
    DECLARE @id bigint;
    DECLARE @outcome nvarchar(20);
    DECLARE @hash_mismatch bit;
    DECLARE @topic nvarchar(255);
    DECLARE @source_key nvarchar(256);
    DECLARE @message_id_key nvarchar(256);
    DECLARE @payload nvarchar(max);
    DECLARE @hash varbinary(max);
    DECLARE @literal varbinary(8000);
    DECLARE @hash_sql nvarchar(max);
    DECLARE @due_at datetime2(6);
    DECLARE @group_id nvarchar(255);
    DECLARE @priority smallint;
    DECLARE @collapse_key nvarchar(255);
    DECLARE @expires_at datetime2(6);
    DECLARE @headers nvarchar(max);
    DECLARE @received_at datetime2(6);
    DECLARE @raw TABLE (
        ordinal int NOT NULL PRIMARY KEY,
        type int NOT NULL,
        topic nvarchar(max) COLLATE Latin1_General_100_BIN2,
        source nvarchar(max) COLLATE Latin1_General_100_BIN2,
        message_id nvarchar(max) COLLATE Latin1_General_100_BIN2,
        payload nvarchar(max) COLLATE Latin1_General_100_BIN2,
        hash nvarchar(max) COLLATE Latin1_General_100_BIN2,
        due_at nvarchar(max) COLLATE Latin1_General_100_BIN2,
        group_id nvarchar(max) COLLATE Latin1_General_100_BIN2,
        priority nvarchar(max) COLLATE Latin1_General_100_BIN2,
        collapse_key nvarchar(max) COLLATE Latin1_General_100_BIN2,
        expires_at nvarchar(max) COLLATE Latin1_General_100_BIN2,
        headers nvarchar(max) COLLATE Latin1_General_100_BIN2,
        received_at nvarchar(max) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @drawn TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @record TABLE (
        ordinal int NOT NULL PRIMARY KEY,
        id bigint NOT NULL,
        source_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        message_id_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        due_at datetime2(6),
        expires_at datetime2(6),
        received_at datetime2(6) NOT NULL,
        priority smallint NOT NULL,
        hash varbinary(max),
        is_first bit NOT NULL,
        is_written bit NOT NULL,
        is_newest bit NOT NULL,
        outcome nvarchar(20) COLLATE Latin1_General_100_BIN2 NOT NULL,
        hash_mismatch bit NOT NULL
    );
    DECLARE @repeat TABLE (place int NOT NULL PRIMARY KEY, ordinal int NOT NULL);
    DECLARE @existing TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @older TABLE (
        id bigint NOT NULL PRIMARY KEY,
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );

    IF @messages IS NULL
        OR ISJSON(@messages) = 0
        OR CHARINDEX(N'[', @messages + N'[') > CHARINDEX(N'{', @messages + N'{')
        EXEC {{ db._reject }} @argument = N'messages', @rule = N'must be a JSON array';

    INSERT INTO @raw (
        ordinal, type, topic, source, message_id, payload, hash, due_at, group_id, priority, collapse_key, expires_at,
        headers, received_at
    )
    SELECT
        CONVERT(int, j.[key]) + 1, j.type,
        {{ 'o.topic' | json_text }},
        {{ 'o.source' | json_text }},
        {{ 'o.message_id' | json_text }},
        {{ 'payload' | json_long_text(record="CASE WHEN j.type = 5 THEN j.value ELSE N'{}' END") }},
        o.hash, o.due_at,
        {{ 'o.group_id' | json_text }},
        o.priority,
        {{ 'o.collapse_key' | json_text }},
        o.expires_at,
        COALESCE(CASE WHEN j.type = 5 THEN JSON_QUERY(j.value, N'$.headers') END, {{ 'o.headers_text' | json_text }}),
        o.received_at
    FROM OPENJSON(@messages) AS j
    CROSS APPLY OPENJSON(CASE WHEN j.type = 5 THEN j.value ELSE N'{}' END) WITH (
        topic nvarchar(max) '$.topic',
        source nvarchar(max) '$.source',
        message_id nvarchar(max) '$.message_id',
        hash nvarchar(max) '$.hash',
        due_at nvarchar(max) '$.due_at',
        group_id nvarchar(max) '$.group_id',
        priority nvarchar(max) '$.priority',
        collapse_key nvarchar(max) '$.collapse_key',
        expires_at nvarchar(max) '$.expires_at',
        headers_text nvarchar(max) '$.headers',
        received_at nvarchar(max) '$.received_at'
    ) AS o;

    IF EXISTS (
        SELECT 1
        FROM @raw AS r
        WHERE r.type <> 5
            -- An empty text converts to 1900 and to 0.
            OR r.due_at = N'' OR r.expires_at = N'' OR r.received_at = N'' OR r.priority = N''
            OR (r.due_at IS NOT NULL AND TRY_CONVERT(datetimeoffset, r.due_at) IS NULL)
            OR (r.expires_at IS NOT NULL AND TRY_CONVERT(datetimeoffset, r.expires_at) IS NULL)
            OR (r.received_at IS NOT NULL AND TRY_CONVERT(datetimeoffset, r.received_at) IS NULL)
            OR (r.priority IS NOT NULL AND TRY_CONVERT(int, r.priority) IS NULL)
            OR r.hash LIKE N'%[^0-9A-Fa-f]%'
            OR LEN(r.hash) % 2 = 1
    )
        EXEC {{ db._reject }}
            @argument = N'messages', @rule = N'every record must be an object, with values of the right types';

    SELECT TOP (1) @broken = v.broken
    FROM @raw AS r
    CROSS APPLY {{ box._valid }} (
        r.topic, r.payload, r.source, r.message_id, NULL, r.group_id,
        CASE WHEN r.priority IS NULL THEN 0 ELSE TRY_CONVERT(int, r.priority) END, r.collapse_key, NULL, r.headers, NULL
    ) AS v
    WHERE v.broken IS NOT NULL
    ORDER BY r.ordinal;
    IF @broken IS NOT NULL
        THROW 51001, @broken, 1;

    BEGIN TRANSACTION;
    SET @now_at = {{ db._now }}();
    -- A sequence cannot be asked for values in a certain order in both engines: so they are drawn first, then ranked.
    INSERT INTO @drawn (id)
    SELECT NEXT VALUE FOR {{ box._ids }}
    FROM @raw;

    INSERT INTO @record (
        ordinal, id, source_key, message_id_key, collapse_key, due_at, expires_at, received_at, priority, hash,
        is_first, is_written, is_newest, outcome, hash_mismatch
    )
    SELECT
        r.ordinal, d.id, r.source + N'.', r.message_id + N'.', r.collapse_key + N'.',
        CONVERT(datetime2(6), SWITCHOFFSET(TRY_CONVERT(datetimeoffset, r.due_at), '+00:00')),
        CONVERT(datetime2(6), SWITCHOFFSET(TRY_CONVERT(datetimeoffset, r.expires_at), '+00:00')),
        ISNULL(CONVERT(datetime2(6), SWITCHOFFSET(TRY_CONVERT(datetimeoffset, r.received_at), '+00:00')), @now_at),
        ISNULL(TRY_CONVERT(smallint, r.priority), 0),
        CASE WHEN SERVERPROPERTY('Babelfish') IS NULL THEN CONVERT(varbinary(max), r.hash, 2) END,
        CASE
            WHEN ROW_NUMBER() OVER (PARTITION BY r.source + N'.', r.message_id + N'.' ORDER BY r.ordinal) = 1 THEN 1
            ELSE 0
        END,
        0, 1, N'created', 0
    FROM (SELECT n.id, ROW_NUMBER() OVER (ORDER BY n.id) AS ordinal FROM @drawn AS n) AS d
    INNER JOIN @raw AS r ON r.ordinal = d.ordinal;

    -- Babelfish does not read hex text, but a literal; the digits were checked above.
    IF SERVERPROPERTY('Babelfish') IS NOT NULL
    BEGIN
        SET @ordinal = (SELECT MIN(r.ordinal) FROM @raw AS r WHERE r.hash IS NOT NULL);
        WHILE @ordinal IS NOT NULL
        BEGIN
            SET @hash_sql = (SELECT N'SET @hash = 0x' + r.hash FROM @raw AS r WHERE r.ordinal = @ordinal);
            EXEC sys.sp_executesql @hash_sql, N'@hash varbinary(8000) OUTPUT', @hash = @literal OUTPUT;
            UPDATE @record SET hash = @literal WHERE ordinal = @ordinal;
            SET @ordinal = (SELECT MIN(r.ordinal) FROM @raw AS r WHERE r.hash IS NOT NULL AND r.ordinal > @ordinal);
        END;
    END;

    -- Keys are taken by trying, in their order. A violated one costs the statement, not the transaction; behind it
    -- the earlier row is there to read.
    WHILE @is_over = 0
    BEGIN
        SET XACT_ABORT OFF;
        BEGIN TRY
            INSERT INTO {{ box.message }} (
                id, first_seen_at, last_seen_at, due_at, expires_at, attempt, priority, source_key, message_id_key,
                topic, payload, hash, group_id, collapse_key, headers
            )
            SELECT
                r.id, r.received_at, @now_at, r.due_at, r.expires_at, 0, r.priority, r.source_key, r.message_id_key,
                w.topic, w.payload, r.hash, w.group_id, w.collapse_key, w.headers
            FROM @record AS r
            INNER JOIN @raw AS w ON w.ordinal = r.ordinal
            WHERE r.is_first = 1
                AND NOT EXISTS (
                    SELECT 1
                    FROM {{ box.message }} AS m WITH (ROWLOCK, READCOMMITTEDLOCK)
                    WHERE m.source_key = r.source_key AND m.message_id_key = r.message_id_key
                )
            ORDER BY r.source_key, r.message_id_key;
            SET @is_over = 1;
        END TRY
        BEGIN CATCH
            SET XACT_ABORT ON;
            SET @tries += 1;
            IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() <> 1 OR @tries > 20
                THROW;
        END CATCH;
        SET XACT_ABORT ON;
    END;

    UPDATE r
    SET is_written = 1
    FROM @record AS r
    WHERE r.is_first = 1 AND EXISTS (SELECT 1 FROM {{ box.message }} AS m WHERE m.id = r.id);

    -- The messages that exist, in id order and before any other lock, as all who wait for messages take them. A write
    -- that changes nothing locks a row in every engine.
    INSERT INTO @existing (id)
    SELECT DISTINCT m.id
    FROM @record AS r
    INNER JOIN {{ box.message }} AS m ON m.source_key = r.source_key AND m.message_id_key = r.message_id_key
    WHERE r.is_written = 0;
    UPDATE m
    SET last_seen_at = m.last_seen_at
    FROM @existing AS e
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = e.id;

    -- Of several with one collapse key in this batch only the newest is placed; the others go before they were seen.
    UPDATE r
    SET is_newest = 0
    FROM @record AS r
    WHERE r.collapse_key IS NOT NULL
        AND EXISTS (
            SELECT 1
            FROM @record AS n
            WHERE n.collapse_key = r.collapse_key AND n.is_written = 1 AND n.id > r.id
        );

    SET @ids = (
        SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), r.id), N',') + N']'
        FROM @record AS r
        WHERE r.is_written = 1 AND r.is_newest = 1
    );
    IF @ids IS NOT NULL
        EXEC {{ box._admit }} @ids = @ids;

    SET @newest = (
        SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), r.id), N',') + N']'
        FROM @record AS r
        WHERE r.collapse_key IS NOT NULL AND r.is_written = 1 AND r.is_newest = 1
    );
    IF @newest IS NOT NULL
    BEGIN
        INSERT INTO @older (id, collapse_key)
        SELECT m.id, c.collapse_key
        FROM @record AS r
        INNER JOIN {{ box.collapse }} AS c WITH (READUNCOMMITTED) ON c.collapse_key = r.collapse_key
        INNER JOIN {{ box.message }} AS m WITH (READUNCOMMITTED) ON m.id = c.id
        WHERE r.is_written = 1 AND r.is_newest = 1;
        EXEC @removed = {{ box._replace }} @newest = @newest;

        DELETE m
        FROM @record AS r
        INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = r.id
        WHERE r.is_written = 1 AND r.is_newest = 0;

        UPDATE r
        SET outcome = N'collapsed'
        FROM @record AS r
        WHERE r.collapse_key IS NOT NULL
            AND r.is_written = 1
            AND r.is_newest = 1
            AND (
                (@removed > 0 AND EXISTS (
                    SELECT 1
                    FROM @older AS o
                    WHERE o.collapse_key = r.collapse_key
                        AND NOT EXISTS (SELECT 1 FROM {{ box.message }} AS m WITH (READUNCOMMITTED) WHERE m.id = o.id)
                ))
                OR EXISTS (
                    SELECT 1
                    FROM @record AS o
                    WHERE o.collapse_key = r.collapse_key AND o.is_written = 1 AND o.is_newest = 0
                )
            );
    END;

    -- Repeated ones one by one, in key order, so that two batches never wait for each other crosswise.
    INSERT INTO @repeat (place, ordinal)
    SELECT ROW_NUMBER() OVER (ORDER BY r.source_key, r.message_id_key, r.id), r.ordinal
    FROM @record AS r
    WHERE r.is_written = 0;
    SET @place = (SELECT MIN(p.place) FROM @repeat AS p);
    WHILE @place IS NOT NULL
    BEGIN
        SELECT
            @ordinal = r.ordinal, @id = r.id, @topic = w.topic, @source_key = r.source_key,
            @message_id_key = r.message_id_key, @payload = w.payload, @hash = r.hash, @due_at = r.due_at,
            @group_id = w.group_id, @priority = r.priority, @collapse_key = w.collapse_key,
            @expires_at = r.expires_at, @headers = w.headers, @received_at = r.received_at
        FROM @repeat AS p
        INNER JOIN @record AS r ON r.ordinal = p.ordinal
        INNER JOIN @raw AS w ON w.ordinal = r.ordinal
        WHERE p.place = @place;
        -- Renewed, or written after all if it has gone meanwhile.
        EXEC {{ box._enqueue }}
            @id = @id OUTPUT, @outcome = @outcome OUTPUT, @hash_mismatch = @hash_mismatch OUTPUT, @now_at = @now_at,
            @topic = @topic, @source_key = @source_key, @message_id_key = @message_id_key, @payload = @payload, @hash = @hash,
            @due_at = @due_at, @group_id = @group_id, @priority = @priority, @collapse_key = @collapse_key,
            @expires_at = @expires_at, @headers = @headers, @received_at = @received_at;
        UPDATE @record
        SET id = @id, outcome = @outcome, hash_mismatch = @hash_mismatch
        WHERE ordinal = @ordinal;
        SET @place = (SELECT MIN(p.place) FROM @repeat AS p WHERE p.place > @place);
    END;
    COMMIT TRANSACTION;

    SELECT CONVERT(bigint, r.ordinal) AS ordinal, r.id, r.outcome, r.hash_mismatch
    FROM @record AS r
    ORDER BY r.ordinal;
END;
