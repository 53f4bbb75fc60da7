-- after: _enqueue

-- Writes many messages in one statement, or none if one of them is wrong.
-- messages: a JSON array of objects, whose keys are the arguments of enqueue; other keys are passed over
-- returns: ordinal, id, message_id, outcome; one row a record, in their order, ordinal from 1
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
    DECLARE @window_seconds float = 0;
    DECLARE @tries int = 0;
    DECLARE @is_over bit = 0;
    DECLARE @ids nvarchar(max);
    DECLARE @newest nvarchar(max);
    DECLARE @removed int;
    DECLARE @ordinal int;
    DECLARE @id bigint;
    DECLARE @message_id uniqueidentifier;
    DECLARE @outcome nvarchar(20);
    DECLARE @topic nvarchar(255);
    DECLARE @payload nvarchar(max);
    DECLARE @correlation_id nvarchar(255);
    DECLARE @due_at datetime2(6);
    DECLARE @group_id nvarchar(255);
    DECLARE @priority smallint;
    DECLARE @dedup_key nvarchar(255);
    DECLARE @collapse_key nvarchar(255);
    DECLARE @expires_at datetime2(6);
    DECLARE @headers nvarchar(max);
    DECLARE @created_at datetime2(6);
    DECLARE @raw TABLE (
        ordinal int NOT NULL PRIMARY KEY,
        type int NOT NULL,
        topic nvarchar(max) COLLATE Latin1_General_100_BIN2,
        payload nvarchar(max) COLLATE Latin1_General_100_BIN2,
        correlation_id nvarchar(max) COLLATE Latin1_General_100_BIN2,
        due_at nvarchar(max) COLLATE Latin1_General_100_BIN2,
        message_id nvarchar(max) COLLATE Latin1_General_100_BIN2,
        group_id nvarchar(max) COLLATE Latin1_General_100_BIN2,
        priority nvarchar(max) COLLATE Latin1_General_100_BIN2,
        dedup_key nvarchar(max) COLLATE Latin1_General_100_BIN2,
        collapse_key nvarchar(max) COLLATE Latin1_General_100_BIN2,
        expires_at nvarchar(max) COLLATE Latin1_General_100_BIN2,
        headers nvarchar(max) COLLATE Latin1_General_100_BIN2,
        created_at nvarchar(max) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @drawn TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @record TABLE (
        ordinal int NOT NULL PRIMARY KEY,
        id bigint NOT NULL,
        message_id uniqueidentifier NOT NULL,
        is_given bit NOT NULL,
        dedup_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        is_keyed bit NOT NULL,
        due_at datetime2(6),
        is_repeated bit NOT NULL,
        is_first bit NOT NULL,
        is_written bit NOT NULL,
        is_newest bit NOT NULL,
        is_replacing bit NOT NULL
    );
    DECLARE @older TABLE (
        id bigint NOT NULL PRIMARY KEY,
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );

    IF @messages IS NULL
        OR ISJSON(@messages) = 0
        OR CHARINDEX(N'[', @messages + N'[') > CHARINDEX(N'{', @messages + N'{')
        EXEC {{ db._reject }} @argument = N'messages', @rule = N'must be a JSON array';

    INSERT INTO @raw (
        ordinal, type, topic, payload, correlation_id, due_at, message_id, group_id, priority, dedup_key, collapse_key,
        expires_at, headers, created_at
    )
    SELECT
        CONVERT(int, j.[key]) + 1, j.type,
        {{ 'o.topic' | json_text }},
        {{ 'payload' | json_long_text(record="CASE WHEN j.type = 5 THEN j.value ELSE N'{}' END") }},
        {{ 'o.correlation_id' | json_text }},
        o.due_at, o.message_id,
        {{ 'o.group_id' | json_text }},
        o.priority,
        {{ 'o.dedup_key' | json_text }},
        {{ 'o.collapse_key' | json_text }},
        o.expires_at,
        COALESCE(CASE WHEN j.type = 5 THEN JSON_QUERY(j.value, N'$.headers') END, {{ 'o.headers_text' | json_text }}),
        o.created_at
    FROM OPENJSON(@messages) AS j
    CROSS APPLY OPENJSON(CASE WHEN j.type = 5 THEN j.value ELSE N'{}' END) WITH (
        topic nvarchar(max) '$.topic',
        correlation_id nvarchar(max) '$.correlation_id',
        due_at nvarchar(max) '$.due_at',
        message_id nvarchar(max) '$.message_id',
        group_id nvarchar(max) '$.group_id',
        priority nvarchar(max) '$.priority',
        dedup_key nvarchar(max) '$.dedup_key',
        collapse_key nvarchar(max) '$.collapse_key',
        expires_at nvarchar(max) '$.expires_at',
        headers_text nvarchar(max) '$.headers',
        created_at nvarchar(max) '$.created_at'
    ) AS o;

    IF EXISTS (
        SELECT 1
        FROM @raw AS r
        WHERE r.type <> 5
            -- An empty text converts to 1900 and to 0.
            OR r.due_at = N'' OR r.expires_at = N'' OR r.created_at = N'' OR r.priority = N''
            OR (r.due_at IS NOT NULL AND TRY_CONVERT(datetimeoffset, r.due_at) IS NULL)
            OR (r.expires_at IS NOT NULL AND TRY_CONVERT(datetimeoffset, r.expires_at) IS NULL)
            OR (r.created_at IS NOT NULL AND TRY_CONVERT(datetimeoffset, r.created_at) IS NULL)
            OR (r.message_id IS NOT NULL AND TRY_CONVERT(uniqueidentifier, r.message_id) IS NULL)
            OR LEN(r.message_id) > 38
            OR (r.priority IS NOT NULL AND TRY_CONVERT(int, r.priority) IS NULL)
    )
        EXEC {{ db._reject }}
            @argument = N'messages', @rule = N'every record must be an object, with values of the right types';

    SELECT TOP (1) @broken = v.broken
    FROM @raw AS r
    CROSS APPLY {{ box._valid }} (
        r.topic, r.payload, r.correlation_id, r.dedup_key, NULL, r.group_id,
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
        ordinal, id, message_id, is_given, dedup_key, collapse_key, is_keyed, due_at, is_repeated, is_first, is_written,
        is_newest, is_replacing
    )
    SELECT
        r.ordinal, d.id,
        COALESCE(TRY_CONVERT(uniqueidentifier, r.message_id), {{ db._uuid }}(NEWID(), @now_at)),
        CASE WHEN r.message_id IS NULL THEN 0 ELSE 1 END,
        r.dedup_key + N'.', r.collapse_key + N'.',
        CASE
            WHEN COALESCE(r.message_id, r.group_id, r.dedup_key, r.collapse_key) IS NULL THEN 0
            ELSE 1
        END,
        CONVERT(datetime2(6), SWITCHOFFSET(TRY_CONVERT(datetimeoffset, r.due_at), '+00:00')),
        0, 1, 0, 1, 0
    FROM (SELECT n.id, ROW_NUMBER() OVER (ORDER BY n.id) AS ordinal FROM @drawn AS n) AS d
    INNER JOIN @raw AS r ON r.ordinal = d.ordinal;

    IF EXISTS (SELECT 1 FROM @record AS r WHERE r.dedup_key IS NOT NULL)
        SELECT @window_seconds = CONVERT(float, s.value)
        FROM {{ box.settings }} AS s
        WHERE s.name = N'dedup_window_seconds';
    IF @window_seconds > 0
    BEGIN
        -- Keys are taken by trying, in their order. A violated one costs the statement, not the transaction; behind
        -- it the earlier row is there to read, or gone.
        WHILE @is_over = 0
        BEGIN
            SET XACT_ABORT OFF;
            BEGIN TRY
                UPDATE d
                SET id = f.id, message_id = f.message_id, seen_at = @now_at
                FROM (
                    SELECT r.dedup_key, r.id, r.message_id, ROW_NUMBER() OVER (PARTITION BY r.dedup_key ORDER BY r.id) AS no
                    FROM @record AS r
                    WHERE r.dedup_key IS NOT NULL
                ) AS f
                INNER JOIN {{ box.dedup }} AS d WITH (ROWLOCK, FORCESEEK) ON d.dedup_key = f.dedup_key
                WHERE f.no = 1
                    AND d.seen_at <= DATEADD(
                        MICROSECOND, -CONVERT(int, (@window_seconds - FLOOR(@window_seconds)) * 1000000),
                        DATEADD(SECOND, -CONVERT(int, FLOOR(@window_seconds)), @now_at)
                    );

                INSERT INTO {{ box.dedup }} (dedup_key, id, message_id, seen_at)
                SELECT f.dedup_key, f.id, f.message_id, @now_at
                FROM (
                    SELECT r.dedup_key, r.id, r.message_id, ROW_NUMBER() OVER (PARTITION BY r.dedup_key ORDER BY r.id) AS no
                    FROM @record AS r
                    WHERE r.dedup_key IS NOT NULL
                ) AS f
                WHERE f.no = 1
                    AND NOT EXISTS (
                        SELECT 1
                        FROM {{ box.dedup }} AS d WITH (ROWLOCK, READCOMMITTEDLOCK)
                        WHERE d.dedup_key = f.dedup_key
                    )
                ORDER BY f.dedup_key;
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
        SET is_repeated = 1
        FROM @record AS r
        WHERE r.dedup_key IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM {{ box.dedup }} AS d WHERE d.dedup_key = r.dedup_key AND d.id = r.id);
    END;

    UPDATE r
    SET is_first = 0
    FROM @record AS r
    WHERE r.is_given = 1
        AND EXISTS (
            SELECT 1
            FROM @record AS e
            WHERE e.message_id = r.message_id AND e.is_given = 1 AND e.is_repeated = 0 AND e.ordinal < r.ordinal
        );

    SET @is_over = 0;
    WHILE @is_over = 0
    BEGIN
        SET XACT_ABORT OFF;
        BEGIN TRY
            INSERT INTO {{ box.message }} (
                id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id,
                group_id, dedup_key, collapse_key, headers
            )
            SELECT
                r.id, r.message_id,
                ISNULL(CONVERT(datetime2(6), SWITCHOFFSET(TRY_CONVERT(datetimeoffset, w.created_at), '+00:00')), @now_at),
                r.due_at,
                CONVERT(datetime2(6), SWITCHOFFSET(TRY_CONVERT(datetimeoffset, w.expires_at), '+00:00')),
                0, ISNULL(TRY_CONVERT(smallint, w.priority), 0), w.topic, w.payload, w.correlation_id,
                w.group_id, w.dedup_key, w.collapse_key, w.headers
            FROM @record AS r
            INNER JOIN @raw AS w ON w.ordinal = r.ordinal
            WHERE r.is_repeated = 0
                AND r.is_first = 1
                AND (
                    r.is_given = 0
                    OR NOT EXISTS (
                        SELECT 1
                        FROM {{ box.message }} AS m WITH (ROWLOCK, READCOMMITTEDLOCK)
                        WHERE m.message_id = r.message_id
                    )
                )
            ORDER BY r.id;
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

    INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic_key)
    SELECT m.due_at, m.id, m.id, m.expires_at, 0 - m.priority, m.topic + N'.'
    FROM @record AS r
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = r.id
    WHERE r.is_keyed = 0 AND m.due_at > @now_at;

    INSERT INTO {{ box.ready }} (lane, ticket, expires_at, topic_key)
    SELECT 0 - m.priority, m.id, m.expires_at, m.topic + N'.'
    FROM @record AS r
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = r.id
    WHERE r.is_keyed = 0 AND (m.due_at IS NULL OR m.due_at <= @now_at);

    IF EXISTS (SELECT 1 FROM @record AS r WHERE r.is_keyed = 1)
    BEGIN
        UPDATE r
        SET is_written = 1
        FROM @record AS r
        WHERE r.is_repeated = 0
            AND r.is_first = 1
            AND (r.is_given = 0 OR EXISTS (SELECT 1 FROM {{ box.message }} AS m WHERE m.id = r.id));

        -- Of several with one key in this batch only the newest is placed; the others go before they were seen.
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
            WHERE r.is_keyed = 1 AND r.is_written = 1 AND r.is_newest = 1
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
            SET is_replacing = 1
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

        -- A repeated message_id whose message was collapsed away above is a new message after all.
        SET @ordinal = (
            SELECT MIN(r.ordinal)
            FROM @record AS r
            WHERE r.is_written = 0 AND r.is_repeated = 0
                AND NOT EXISTS (SELECT 1 FROM {{ box.message }} AS m WHERE m.message_id = r.message_id)
        );
        WHILE @ordinal IS NOT NULL
        BEGIN
            SELECT
                @id = r.id, @message_id = r.message_id, @topic = w.topic, @payload = w.payload,
                @correlation_id = w.correlation_id, @due_at = r.due_at, @group_id = w.group_id,
                @priority = ISNULL(TRY_CONVERT(smallint, w.priority), 0), @dedup_key = w.dedup_key,
                @collapse_key = w.collapse_key,
                @expires_at = CONVERT(datetime2(6), SWITCHOFFSET(TRY_CONVERT(datetimeoffset, w.expires_at), '+00:00')),
                @headers = w.headers,
                @created_at = ISNULL(
                    CONVERT(datetime2(6), SWITCHOFFSET(TRY_CONVERT(datetimeoffset, w.created_at), '+00:00')), @now_at
                )
            FROM @record AS r
            INNER JOIN @raw AS w ON w.ordinal = r.ordinal
            WHERE r.ordinal = @ordinal;
            EXEC {{ box._enqueue }}
                @id = @id OUTPUT, @message_id = @message_id OUTPUT, @outcome = @outcome OUTPUT, @now_at = @now_at,
                @topic = @topic, @payload = @payload, @correlation_id = @correlation_id, @due_at = @due_at,
                @group_id = @group_id, @priority = @priority, @dedup_key = @dedup_key, @collapse_key = @collapse_key,
                @expires_at = @expires_at, @headers = @headers, @created_at = @created_at;
            UPDATE @record
            SET
                is_written = CASE WHEN @outcome = N'duplicate' THEN 0 ELSE 1 END,
                is_replacing = CASE WHEN @outcome = N'collapsed' THEN 1 ELSE 0 END
            WHERE ordinal = @ordinal;
            SET @ordinal = (
                SELECT MIN(r.ordinal)
                FROM @record AS r
                WHERE r.is_written = 0 AND r.is_repeated = 0 AND r.ordinal > @ordinal
                    AND NOT EXISTS (SELECT 1 FROM {{ box.message }} AS m WHERE m.message_id = r.message_id)
            );
        END;

        -- A key entered above for a message that turned out to exist already stands for the existing one.
        IF @window_seconds > 0
            UPDATE d
            SET id = m.id
            FROM @record AS r
            INNER JOIN {{ box.message }} AS m ON m.message_id = r.message_id
            INNER JOIN {{ box.dedup }} AS d WITH (ROWLOCK, FORCESEEK) ON d.dedup_key = r.dedup_key
            WHERE r.is_written = 0 AND r.is_repeated = 0 AND d.id = r.id;
    END
    ELSE
        UPDATE @record SET is_written = 1;
    COMMIT TRANSACTION;

    SELECT
        CONVERT(bigint, r.ordinal) AS ordinal,
        COALESCE(d.id, m.id, r.id) AS id,
        COALESCE(d.message_id, r.message_id) AS message_id,
        CASE
            WHEN r.is_written = 0 THEN N'duplicate'
            WHEN r.is_replacing = 1 THEN N'collapsed'
            ELSE N'created'
        END AS outcome
    FROM @record AS r
    LEFT JOIN {{ box.dedup }} AS d ON r.is_repeated = 1 AND d.dedup_key = r.dedup_key
    LEFT JOIN {{ box.message }} AS m ON r.is_written = 0 AND r.is_repeated = 0 AND m.message_id = r.message_id
    ORDER BY r.ordinal;
END;
