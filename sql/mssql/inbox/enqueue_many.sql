-- after: _enqueue
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}
{% import "macros/records.sql" as records with context %}

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
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6);
    DECLARE @broken nvarchar(2048);
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
        received_at nvarchar(max) COLLATE Latin1_General_100_BIN2,
        delay_seconds nvarchar(max) COLLATE Latin1_General_100_BIN2
    );
    {{ records.number_tables() }}
    {{ records.key_tables() }}
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
    DECLARE @collapsing TABLE (ordinal int NOT NULL PRIMARY KEY, newest_id bigint, written int NOT NULL);
    DECLARE @older TABLE (
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        id bigint NOT NULL,
        PRIMARY KEY (collapse_key, id)
    );

    IF @messages IS NULL OR {{ arguments.not_array("@messages") }}
    {{ arguments.reject("messages", "must be a JSON array") }}

    -- Each record is read once. OPENJSON answers null for an array or object, which must not pass for an argument that was
    -- left out: so it is read as its text, which is then no time, no number and no uuid. Babelfish has to look for what
    -- may be longer than 4000 characters by itself.
    IF SERVERPROPERTY('Babelfish') IS NULL
        INSERT INTO @raw (
            ordinal, type, topic, source, message_id, payload, hash, due_at, group_id, priority, collapse_key, expires_at,
            headers, received_at, delay_seconds
        )
        SELECT
            CONVERT(int, j.[key]) + 1, j.type, o.topic, o.source, o.message_id, COALESCE(o.payload, o.payload_json),
            COALESCE(o.hash, o.hash_json), COALESCE(o.due_at, o.due_at_json),
            COALESCE(o.group_id, o.group_id_json), COALESCE(o.priority, o.priority_json),
            COALESCE(o.collapse_key, o.collapse_key_json), COALESCE(o.expires_at, o.expires_at_json),
            COALESCE(o.headers_json, o.headers),
            COALESCE(o.received_at, o.received_at_json), COALESCE(o.delay_seconds, o.delay_seconds_json)
        FROM OPENJSON(@messages) AS j
        CROSS APPLY OPENJSON({{ records.record() }}) WITH (
            topic nvarchar(max) '$.topic',
            source nvarchar(max) '$.source',
            message_id nvarchar(max) '$.message_id',
            payload nvarchar(max) '$.payload',
            payload_json nvarchar(max) '$.payload' AS JSON,
            hash nvarchar(max) '$.hash',
            hash_json nvarchar(max) '$.hash' AS JSON,
            due_at nvarchar(max) '$.due_at',
            due_at_json nvarchar(max) '$.due_at' AS JSON,
            group_id nvarchar(max) '$.group_id',
            group_id_json nvarchar(max) '$.group_id' AS JSON,
            priority nvarchar(max) '$.priority',
            priority_json nvarchar(max) '$.priority' AS JSON,
            collapse_key nvarchar(max) '$.collapse_key',
            collapse_key_json nvarchar(max) '$.collapse_key' AS JSON,
            expires_at nvarchar(max) '$.expires_at',
            expires_at_json nvarchar(max) '$.expires_at' AS JSON,
            headers nvarchar(max) '$.headers',
            headers_json nvarchar(max) '$.headers' AS JSON,
            received_at nvarchar(max) '$.received_at',
            received_at_json nvarchar(max) '$.received_at' AS JSON,
            delay_seconds nvarchar(max) '$.delay_seconds',
            delay_seconds_json nvarchar(max) '$.delay_seconds' AS JSON
        ) AS o;
    ELSE
        INSERT INTO @raw (
            ordinal, type, topic, source, message_id, payload, hash, due_at, group_id, priority, collapse_key, expires_at,
            headers, received_at, delay_seconds
        )
        SELECT
            CONVERT(int, j.[key]) + 1, j.type,
            {{ 'o.topic' | json_text }},
            {{ 'o.source' | json_text }},
            {{ 'o.message_id' | json_text }},
            {{ 'payload' | json_long_text(record=records.record()) }},
            COALESCE(o.hash, o.hash_json), COALESCE(o.due_at, o.due_at_json),
            COALESCE({{ 'o.group_id' | json_text }}, o.group_id_json),
            COALESCE(o.priority, o.priority_json),
            COALESCE({{ 'o.collapse_key' | json_text }}, o.collapse_key_json),
            COALESCE(o.expires_at, o.expires_at_json),
            COALESCE(CASE WHEN j.type = 5 THEN JSON_QUERY(j.value, N'$.headers') END, {{ 'o.headers' | json_text }}),
            COALESCE(o.received_at, o.received_at_json), COALESCE(o.delay_seconds, o.delay_seconds_json)
        FROM OPENJSON(@messages) AS j
        CROSS APPLY OPENJSON({{ records.record() }}) WITH (
            topic nvarchar(max) '$.topic',
            source nvarchar(max) '$.source',
            message_id nvarchar(max) '$.message_id',
            hash nvarchar(max) '$.hash',
            hash_json nvarchar(max) '$.hash' AS JSON,
            due_at nvarchar(max) '$.due_at',
            due_at_json nvarchar(max) '$.due_at' AS JSON,
            group_id nvarchar(max) '$.group_id',
            group_id_json nvarchar(max) '$.group_id' AS JSON,
            priority nvarchar(max) '$.priority',
            priority_json nvarchar(max) '$.priority' AS JSON,
            collapse_key nvarchar(max) '$.collapse_key',
            collapse_key_json nvarchar(max) '$.collapse_key' AS JSON,
            expires_at nvarchar(max) '$.expires_at',
            expires_at_json nvarchar(max) '$.expires_at' AS JSON,
            headers nvarchar(max) '$.headers',
            received_at nvarchar(max) '$.received_at',
            received_at_json nvarchar(max) '$.received_at' AS JSON,
            delay_seconds nvarchar(max) '$.delay_seconds',
            delay_seconds_json nvarchar(max) '$.delay_seconds' AS JSON
        ) AS o;

    IF EXISTS (
        SELECT 1
        FROM @raw AS r
        WHERE r.type <> 5
            OR {{ records.is_no("datetimeoffset", "r.due_at") }}
            OR {{ records.is_no("datetimeoffset", "r.expires_at") }}
            OR {{ records.is_no("datetimeoffset", "r.received_at") }}
            OR {{ records.is_no("int", "r.priority") }}
            OR {{ records.is_no("float", "r.delay_seconds") }}
            OR r.hash LIKE N'%[^0-9A-Fa-f]%'
            OR LEN(r.hash) % 2 = 1
    )
    {{ arguments.reject("messages", "every record must be an object, with values of the right types") }}

    SELECT TOP (1) @broken = v.broken
    FROM @raw AS r
    CROSS APPLY {{ box._valid }} (
        r.topic, r.payload, r.source, r.message_id, TRY_CONVERT(datetimeoffset, r.due_at), r.group_id,
        CASE WHEN r.priority IS NULL THEN 0 ELSE TRY_CONVERT(int, r.priority) END, r.collapse_key, NULL, r.headers, NULL,
        TRY_CONVERT(float, r.delay_seconds)
    ) AS v
    WHERE v.broken IS NOT NULL
    ORDER BY r.ordinal;
    IF @broken IS NOT NULL
    {{ arguments.raise(51001, "@broken") }}

    BEGIN TRANSACTION;
    SET @now_at = {{ clock.now() }};
    {{ records.number_raw() }}
    INSERT INTO @record (
        ordinal, id, source_key, message_id_key, collapse_key, due_at, expires_at, received_at, priority, hash,
        is_first, is_written, is_newest, outcome, hash_mismatch
    )
    SELECT
        r.ordinal, n.id, r.source + N'.', r.message_id + N'.', r.collapse_key + N'.',
        {{ records.due() | indent(4) }},
        {{ records.time("r.expires_at") }},
        ISNULL({{ records.time("r.received_at") }}, @now_at),
        ISNULL(TRY_CONVERT(smallint, r.priority), 0),
        CASE WHEN SERVERPROPERTY('Babelfish') IS NULL THEN CONVERT(varbinary(max), r.hash, 2) END,
        CASE
            WHEN ROW_NUMBER() OVER (PARTITION BY r.source + N'.', r.message_id + N'.' ORDER BY r.ordinal) = 1 THEN 1
            ELSE 0
        END,
        0, 1, N'created', 0
    FROM @numbered AS n
    INNER JOIN @raw AS r ON r.ordinal = n.ordinal;

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

    INSERT INTO @key (number)
    SELECT DISTINCT {{ locks.number(locks.message_key("r.source_key", "r.message_id_key")) }}
    FROM @record AS r;
    {{ records.lock_keys("message_id") }}

    INSERT INTO {{ box.message }} (
        id, first_seen_at, last_seen_at, due_at, expires_at, attempt, priority, source_key, message_id_key, topic,
        payload, hash, group_id, collapse_key, headers
    )
    SELECT
        r.id, r.received_at, @now_at, r.due_at, r.expires_at, 0, r.priority, r.source_key, r.message_id_key, w.topic,
        w.payload, r.hash, w.group_id, w.collapse_key, w.headers
    FROM @record AS r
    INNER JOIN @raw AS w ON w.ordinal = r.ordinal
    WHERE r.is_first = 1
        AND NOT EXISTS (
            SELECT 1
            FROM {{ box.message }} AS m WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
            WHERE m.source_key = r.source_key AND m.message_id_key = r.message_id_key
        )
    ORDER BY r.id
    OPTION (KEEPFIXED PLAN);

    UPDATE r
    SET is_written = 1
    FROM @record AS r
    WHERE r.is_first = 1 AND EXISTS (SELECT 1 FROM {{ box.message }} AS m WITH (FORCESEEK) WHERE m.id = r.id)
    OPTION (KEEPFIXED PLAN);

    -- The messages that exist, in id order, as all who wait for messages take them. A write that changes nothing locks
    -- a row in every engine.
    INSERT INTO @existing (id)
    SELECT DISTINCT m.id
    FROM @record AS r
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.source_key = r.source_key AND m.message_id_key = r.message_id_key
    WHERE r.is_written = 0
    OPTION (KEEPFIXED PLAN);
    UPDATE m
    SET last_seen_at = m.last_seen_at
    FROM {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK)
    WHERE m.id IN (SELECT e.id FROM @existing AS e)
    OPTION (KEEPFIXED PLAN);

    -- Of several with one collapse key in this batch only the newest is placed; the others go before they were seen.
    INSERT INTO @collapsing (ordinal, newest_id, written)
    SELECT
        r.ordinal,
        MAX(CASE WHEN r.is_written = 1 THEN r.id END) OVER (PARTITION BY r.collapse_key),
        SUM(CASE WHEN r.is_written = 1 THEN 1 ELSE 0 END) OVER (PARTITION BY r.collapse_key)
    FROM @record AS r
    WHERE r.collapse_key IS NOT NULL;
    UPDATE r
    SET is_newest = 0
    FROM @collapsing AS c
    INNER JOIN @record AS r ON r.ordinal = c.ordinal
    WHERE c.newest_id > r.id;

    SET @ids = (
        SELECT {{ arguments.array_of("r.id") }}
        FROM @record AS r
        WHERE r.is_written = 1 AND r.is_newest = 1
    );
    IF @ids IS NOT NULL
        EXEC {{ box._admit }} @ids = @ids;

    SET @newest = (
        SELECT {{ arguments.array_of("r.id") }}
        FROM @record AS r
        WHERE r.collapse_key IS NOT NULL AND r.is_written = 1 AND r.is_newest = 1
    );
    IF @newest IS NOT NULL
    BEGIN
        INSERT INTO @older (collapse_key, id)
        SELECT r.collapse_key, m.id
        FROM @record AS r
        INNER JOIN {{ box.collapse }} AS c WITH (READUNCOMMITTED, FORCESEEK) ON c.collapse_key = r.collapse_key
        INNER JOIN {{ box.message }} AS m WITH (READUNCOMMITTED, FORCESEEK) ON m.id = c.id
        WHERE r.is_written = 1 AND r.is_newest = 1
        OPTION (KEEPFIXED PLAN);
        EXEC @removed = {{ box._replace }} @newest = @newest;

        DELETE m
        FROM @record AS r
        INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = r.id
        WHERE r.is_written = 1 AND r.is_newest = 0
        OPTION (KEEPFIXED PLAN);

        UPDATE r
        SET outcome = N'collapsed'
        FROM @collapsing AS c
        INNER JOIN @record AS r ON r.ordinal = c.ordinal
        WHERE r.is_written = 1
            AND r.is_newest = 1
            AND (
                c.written > 1
                OR (@removed > 0 AND EXISTS (
                    SELECT 1
                    FROM @older AS o
                    WHERE o.collapse_key = r.collapse_key
                        AND NOT EXISTS (SELECT 1 FROM {{ box.message }} AS m WITH (READUNCOMMITTED, FORCESEEK) WHERE m.id = o.id)
                ))
            )
        OPTION (KEEPFIXED PLAN);
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

    {{ records.answer() }}
        SELECT CONVERT(bigint, r.ordinal) AS ordinal, r.id, r.outcome, r.hash_mismatch
        FROM @record AS r
        ORDER BY r.ordinal;
END;
