-- after: _enqueue
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}
{% import "macros/records.sql" as records with context %}

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
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6);
    DECLARE @broken nvarchar(2048);
    DECLARE @window_seconds float = 0;
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
        created_at nvarchar(max) COLLATE Latin1_General_100_BIN2,
        delay_seconds nvarchar(max) COLLATE Latin1_General_100_BIN2
    );
    {{ records.number_tables() }}
    {{ records.key_tables() }}
    DECLARE @record TABLE (
        ordinal int NOT NULL PRIMARY KEY,
        id bigint NOT NULL,
        message_id uniqueidentifier NOT NULL,
        is_given bit NOT NULL,
        dedup_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        is_key_first bit NOT NULL,
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        is_keyed bit NOT NULL,
        due_at datetime2(6),
        expires_at datetime2(6),
        created_at datetime2(6) NOT NULL,
        priority smallint NOT NULL,
        is_repeated bit NOT NULL,
        is_first bit NOT NULL,
        is_written bit NOT NULL,
        is_newest bit NOT NULL,
        is_replacing bit NOT NULL
    );
    DECLARE @later TABLE (ordinal int NOT NULL PRIMARY KEY);
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
            ordinal, type, topic, payload, correlation_id, due_at, message_id, group_id, priority, dedup_key,
            collapse_key, expires_at, headers, created_at, delay_seconds
        )
        SELECT
            CONVERT(int, j.[key]) + 1, j.type, o.topic, COALESCE(o.payload, o.payload_json),
            COALESCE(o.correlation_id, o.correlation_id_json), COALESCE(o.due_at, o.due_at_json),
            COALESCE(o.message_id, o.message_id_json), COALESCE(o.group_id, o.group_id_json),
            COALESCE(o.priority, o.priority_json), COALESCE(o.dedup_key, o.dedup_key_json),
            COALESCE(o.collapse_key, o.collapse_key_json), COALESCE(o.expires_at, o.expires_at_json),
            COALESCE(o.headers_json, o.headers), COALESCE(o.created_at, o.created_at_json),
            COALESCE(o.delay_seconds, o.delay_seconds_json)
        FROM OPENJSON(@messages) AS j
        CROSS APPLY OPENJSON({{ records.record() }}) WITH (
            topic nvarchar(max) '$.topic',
            payload nvarchar(max) '$.payload',
            payload_json nvarchar(max) '$.payload' AS JSON,
            correlation_id nvarchar(max) '$.correlation_id',
            correlation_id_json nvarchar(max) '$.correlation_id' AS JSON,
            due_at nvarchar(max) '$.due_at',
            due_at_json nvarchar(max) '$.due_at' AS JSON,
            message_id nvarchar(max) '$.message_id',
            message_id_json nvarchar(max) '$.message_id' AS JSON,
            group_id nvarchar(max) '$.group_id',
            group_id_json nvarchar(max) '$.group_id' AS JSON,
            priority nvarchar(max) '$.priority',
            priority_json nvarchar(max) '$.priority' AS JSON,
            dedup_key nvarchar(max) '$.dedup_key',
            dedup_key_json nvarchar(max) '$.dedup_key' AS JSON,
            collapse_key nvarchar(max) '$.collapse_key',
            collapse_key_json nvarchar(max) '$.collapse_key' AS JSON,
            expires_at nvarchar(max) '$.expires_at',
            expires_at_json nvarchar(max) '$.expires_at' AS JSON,
            headers nvarchar(max) '$.headers',
            headers_json nvarchar(max) '$.headers' AS JSON,
            created_at nvarchar(max) '$.created_at',
            created_at_json nvarchar(max) '$.created_at' AS JSON,
            delay_seconds nvarchar(max) '$.delay_seconds',
            delay_seconds_json nvarchar(max) '$.delay_seconds' AS JSON
        ) AS o;
    ELSE
        INSERT INTO @raw (
            ordinal, type, topic, payload, correlation_id, due_at, message_id, group_id, priority, dedup_key,
            collapse_key, expires_at, headers, created_at, delay_seconds
        )
        SELECT
            CONVERT(int, j.[key]) + 1, j.type,
            {{ 'o.topic' | json_text }},
            {{ 'payload' | json_long_text(record=records.record()) }},
            COALESCE({{ 'o.correlation_id' | json_text }}, o.correlation_id_json),
            COALESCE(o.due_at, o.due_at_json), COALESCE(o.message_id, o.message_id_json),
            COALESCE({{ 'o.group_id' | json_text }}, o.group_id_json),
            COALESCE(o.priority, o.priority_json),
            COALESCE({{ 'o.dedup_key' | json_text }}, o.dedup_key_json),
            COALESCE({{ 'o.collapse_key' | json_text }}, o.collapse_key_json),
            COALESCE(o.expires_at, o.expires_at_json),
            COALESCE(CASE WHEN j.type = 5 THEN JSON_QUERY(j.value, N'$.headers') END, {{ 'o.headers' | json_text }}),
            COALESCE(o.created_at, o.created_at_json), COALESCE(o.delay_seconds, o.delay_seconds_json)
        FROM OPENJSON(@messages) AS j
        CROSS APPLY OPENJSON({{ records.record() }}) WITH (
            topic nvarchar(max) '$.topic',
            correlation_id nvarchar(max) '$.correlation_id',
            correlation_id_json nvarchar(max) '$.correlation_id' AS JSON,
            due_at nvarchar(max) '$.due_at',
            due_at_json nvarchar(max) '$.due_at' AS JSON,
            message_id nvarchar(max) '$.message_id',
            message_id_json nvarchar(max) '$.message_id' AS JSON,
            group_id nvarchar(max) '$.group_id',
            group_id_json nvarchar(max) '$.group_id' AS JSON,
            priority nvarchar(max) '$.priority',
            priority_json nvarchar(max) '$.priority' AS JSON,
            dedup_key nvarchar(max) '$.dedup_key',
            dedup_key_json nvarchar(max) '$.dedup_key' AS JSON,
            collapse_key nvarchar(max) '$.collapse_key',
            collapse_key_json nvarchar(max) '$.collapse_key' AS JSON,
            expires_at nvarchar(max) '$.expires_at',
            expires_at_json nvarchar(max) '$.expires_at' AS JSON,
            headers nvarchar(max) '$.headers',
            created_at nvarchar(max) '$.created_at',
            created_at_json nvarchar(max) '$.created_at' AS JSON,
            delay_seconds nvarchar(max) '$.delay_seconds',
            delay_seconds_json nvarchar(max) '$.delay_seconds' AS JSON
        ) AS o;

    IF EXISTS (
        SELECT 1
        FROM @raw AS r
        WHERE r.type <> 5
            OR {{ records.is_no("datetimeoffset", "r.due_at") }}
            OR {{ records.is_no("datetimeoffset", "r.expires_at") }}
            OR {{ records.is_no("datetimeoffset", "r.created_at") }}
            OR {{ records.is_no("uniqueidentifier", "r.message_id") }}
            OR LEN(r.message_id) > 38
            OR {{ records.is_no("int", "r.priority") }}
            OR {{ records.is_no("float", "r.delay_seconds") }}
    )
    {{ arguments.reject("messages", "every record must be an object, with values of the right types") }}
    IF EXISTS (
        SELECT 1
        FROM @raw AS r
        WHERE TRY_CONVERT(uniqueidentifier, r.message_id) = '00000000-0000-0000-0000-000000000000'
    )
    {{ arguments.reject("message_id", "must not be the nil uuid") }}

    SELECT TOP (1) @broken = v.broken
    FROM @raw AS r
    CROSS APPLY {{ box._valid }} (
        r.topic, r.payload, r.correlation_id, r.dedup_key, TRY_CONVERT(datetimeoffset, r.due_at), r.group_id,
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
        ordinal, id, message_id, is_given, dedup_key, is_key_first, collapse_key, is_keyed, due_at, expires_at, created_at,
        priority, is_repeated, is_first, is_written, is_newest, is_replacing
    )
    SELECT
        r.ordinal, n.id,
        COALESCE(TRY_CONVERT(uniqueidentifier, r.message_id), {{ db._uuid }}(NEWID(), @now_at, n.id)),
        CASE WHEN r.message_id IS NULL THEN 0 ELSE 1 END,
        r.dedup_key + N'.',
        CASE
            WHEN r.dedup_key IS NULL THEN 0
            WHEN ROW_NUMBER() OVER (PARTITION BY r.dedup_key + N'.' ORDER BY r.ordinal) = 1 THEN 1
            ELSE 0
        END,
        r.collapse_key + N'.',
        CASE
            WHEN COALESCE(r.message_id, r.group_id, r.dedup_key, r.collapse_key) IS NULL THEN 0
            ELSE 1
        END,
        {{ records.due() | indent(4) }},
        {{ records.time("r.expires_at") }},
        ISNULL({{ records.time("r.created_at") }}, @now_at),
        ISNULL(TRY_CONVERT(smallint, r.priority), 0),
        0, 1, 0, 1, 0
    FROM @numbered AS n
    INNER JOIN @raw AS r ON r.ordinal = n.ordinal;

    IF EXISTS (SELECT 1 FROM @record AS r WHERE r.dedup_key IS NOT NULL)
        SELECT @window_seconds = CONVERT(float, s.value)
        FROM {{ box.settings }} AS s
        WHERE s.name = N'dedup_window_seconds';
    IF @window_seconds > 0
    BEGIN
        INSERT INTO @key (number)
        SELECT DISTINCT {{ locks.number(locks.key("dedup", "w.dedup_key")) }}
        FROM @raw AS w
        WHERE w.dedup_key IS NOT NULL;
        {{ records.lock_keys("dedup_key") | indent(4) }}

        UPDATE d
        SET id = r.id, message_id = r.message_id, seen_at = @now_at
        FROM @record AS r
        INNER JOIN {{ box.dedup }} AS d WITH (ROWLOCK, FORCESEEK) ON d.dedup_key = r.dedup_key
        WHERE r.is_key_first = 1
            AND d.seen_at <= DATEADD(
                MICROSECOND, -CONVERT(int, (@window_seconds - FLOOR(@window_seconds)) * 1000000),
                DATEADD(SECOND, -CONVERT(int, FLOOR(@window_seconds)), @now_at)
            )
        OPTION (KEEPFIXED PLAN);

        INSERT INTO {{ box.dedup }} (dedup_key, id, message_id, seen_at)
        SELECT r.dedup_key, r.id, r.message_id, @now_at
        FROM @record AS r
        WHERE r.is_key_first = 1
            AND NOT EXISTS (
                SELECT 1
                FROM {{ box.dedup }} AS d WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                WHERE d.dedup_key = r.dedup_key
            )
        OPTION (KEEPFIXED PLAN);

        UPDATE r
        SET is_repeated = 1
        FROM @record AS r
        WHERE r.dedup_key IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM {{ box.dedup }} AS d WITH (FORCESEEK) WHERE d.dedup_key = r.dedup_key AND d.id = r.id)
        OPTION (KEEPFIXED PLAN);
    END;

    IF EXISTS (SELECT 1 FROM @record AS r WHERE r.is_given = 1 AND r.is_repeated = 0)
    BEGIN
        INSERT INTO @key (number)
        SELECT DISTINCT {{ locks.number(locks.key("message_id", "r.message_id")) }}
        FROM @record AS r
        WHERE r.is_given = 1 AND r.is_repeated = 0;
        {{ records.lock_keys("message_id") | indent(4) }}

        INSERT INTO @later (ordinal)
        SELECT g.ordinal
        FROM (
            SELECT r.ordinal, ROW_NUMBER() OVER (PARTITION BY r.message_id ORDER BY r.ordinal) AS no
            FROM @record AS r
            WHERE r.is_given = 1 AND r.is_repeated = 0
        ) AS g
        WHERE g.no > 1;
        UPDATE @record SET is_first = 0 WHERE ordinal IN (SELECT l.ordinal FROM @later AS l);
    END;

    INSERT INTO {{ box.message }} (
        id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id, group_id,
        dedup_key, collapse_key, headers
    )
    SELECT
        r.id, r.message_id, r.created_at, r.due_at, r.expires_at, 0, r.priority, w.topic, w.payload, w.correlation_id,
        w.group_id, w.dedup_key, w.collapse_key, w.headers
    FROM @record AS r
    INNER JOIN @raw AS w ON w.ordinal = r.ordinal
    WHERE r.is_repeated = 0
        AND r.is_first = 1
        AND (
            r.is_given = 0
            OR NOT EXISTS (
                SELECT 1
                FROM {{ box.message }} AS m WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                WHERE m.message_id = r.message_id
            )
        )
    ORDER BY r.id
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic_key)
    SELECT r.due_at, r.id, r.id, r.expires_at, 0 - r.priority, w.topic + N'.'
    FROM @record AS r
    INNER JOIN @raw AS w ON w.ordinal = r.ordinal
    WHERE r.is_keyed = 0 AND r.due_at > @now_at
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.ready }} (lane, ticket, expires_at, topic_key)
    SELECT 0 - r.priority, r.id, r.expires_at, w.topic + N'.'
    FROM @record AS r
    INNER JOIN @raw AS w ON w.ordinal = r.ordinal
    WHERE r.is_keyed = 0 AND (r.due_at IS NULL OR r.due_at <= @now_at)
    OPTION (KEEPFIXED PLAN);

    IF EXISTS (SELECT 1 FROM @record AS r WHERE r.is_keyed = 1)
    BEGIN
        UPDATE r
        SET is_written = 1
        FROM @record AS r
        WHERE r.is_repeated = 0
            AND r.is_first = 1
            AND (r.is_given = 0 OR EXISTS (SELECT 1 FROM {{ box.message }} AS m WITH (FORCESEEK) WHERE m.id = r.id))
        OPTION (KEEPFIXED PLAN);

        -- Of several with one key in this batch only the newest is placed; the others go before they were seen.
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
            WHERE r.is_keyed = 1 AND r.is_written = 1 AND r.is_newest = 1
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
            SET is_replacing = 1
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

        -- A repeated message_id whose message was collapsed away above is a new message after all.
        SET @ordinal = (
            SELECT MIN(r.ordinal)
            FROM @record AS r
            WHERE r.is_written = 0 AND r.is_repeated = 0
                AND NOT EXISTS (SELECT 1 FROM {{ box.message }} AS m WITH (FORCESEEK) WHERE m.message_id = r.message_id)
        );
        WHILE @ordinal IS NOT NULL
        BEGIN
            SELECT
                @id = r.id, @message_id = r.message_id, @topic = w.topic, @payload = w.payload,
                @correlation_id = w.correlation_id, @due_at = r.due_at, @group_id = w.group_id,
                @priority = r.priority, @dedup_key = w.dedup_key, @collapse_key = w.collapse_key,
                @expires_at = r.expires_at, @headers = w.headers, @created_at = r.created_at
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
                    AND NOT EXISTS (SELECT 1 FROM {{ box.message }} AS m WITH (FORCESEEK) WHERE m.message_id = r.message_id)
            );
        END;

        -- A key entered above for a message that turned out to exist already stands for the existing one.
        IF @window_seconds > 0
            UPDATE d
            SET id = m.id
            FROM @record AS r
            INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.message_id = r.message_id
            INNER JOIN {{ box.dedup }} AS d WITH (ROWLOCK, FORCESEEK) ON d.dedup_key = r.dedup_key
            WHERE r.is_written = 0 AND r.is_repeated = 0 AND d.id = r.id
            OPTION (KEEPFIXED PLAN);

        -- Duplicates answer with the earlier message.
        UPDATE r
        SET id = d.id, message_id = d.message_id
        FROM @record AS r
        INNER JOIN {{ box.dedup }} AS d WITH (FORCESEEK) ON d.dedup_key = r.dedup_key
        WHERE r.is_repeated = 1
        OPTION (KEEPFIXED PLAN);
        UPDATE r
        SET id = m.id
        FROM @record AS r
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.message_id = r.message_id
        WHERE r.is_written = 0 AND r.is_repeated = 0
        OPTION (KEEPFIXED PLAN);
    END
    ELSE
        UPDATE @record SET is_written = 1;
    COMMIT TRANSACTION;

    {{ records.answer() }}
        SELECT
            CONVERT(bigint, r.ordinal) AS ordinal, r.id, r.message_id,
            CASE
                WHEN r.is_written = 0 THEN N'duplicate'
                WHEN r.is_replacing = 1 THEN N'collapsed'
                ELSE N'created'
            END AS outcome
        FROM @record AS r
        ORDER BY r.ordinal;
END;
