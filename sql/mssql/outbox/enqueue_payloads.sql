{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/records.sql" as records with context %}

-- Writes many messages that differ only in their payloads: the quickest way in.
-- topic: 1 to 255 characters
-- payloads: not null, and none of them null
-- correlation_id: up to 255 characters
-- due_at: not handed out before; null or past is now
-- priority: from -32768 to 32767, higher first
-- expires_at: not handed out from then on
-- headers: a JSON object
-- returns: ordinal, id, message_id; one row a payload, in their order, ordinal from 1
-- errors: PB001
-- locks: none
-- role: producer
CREATE OR ALTER PROCEDURE {{ box.enqueue_payloads }}
    @topic nvarchar(max),
    @payloads nvarchar(max),
    @correlation_id nvarchar(max) = NULL,
    @due_at datetimeoffset(6) = NULL,
    @priority int = 0,
    @expires_at datetimeoffset(6) = NULL,
    @headers nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6);
    DECLARE @due datetime2(6) = CONVERT(datetime2(6), SWITCHOFFSET(@due_at, '+00:00'));
    DECLARE @expires datetime2(6) = CONVERT(datetime2(6), SWITCHOFFSET(@expires_at, '+00:00'));
    DECLARE @raw TABLE (
        ordinal int NOT NULL PRIMARY KEY,
        type int NOT NULL,
        payload nvarchar(max) COLLATE Latin1_General_100_BIN2
    );
    {{ records.number_tables() }}
    DECLARE @record TABLE (
        ordinal int NOT NULL PRIMARY KEY,
        id bigint NOT NULL,
        message_id uniqueidentifier NOT NULL
    );

    SET @priority = ISNULL(@priority, 0);
    IF EXISTS (
        SELECT 1
        FROM {{ box._valid }} (
            @topic, N'', @correlation_id, NULL, @due_at, NULL, @priority, NULL, @expires_at, @headers, NULL, NULL
        ) AS v
        WHERE v.broken IS NOT NULL
    )
    {{ arguments.check_by(box._explain ~ """
            @topic, N'', @correlation_id, NULL, @due_at, NULL, @priority, NULL, @expires_at, @headers, NULL, NULL""") }}
    IF @payloads IS NULL
        OR {{ arguments.not_array("@payloads") }}
        OR CHARINDEX(N'[', @payloads + N'[') > CHARINDEX(N'"', @payloads + N'"')
    {{ arguments.reject("payloads", "must be an array of texts") }}

    INSERT INTO @raw (ordinal, type, payload)
    SELECT CONVERT(int, j.[key]) + 1, j.type, {{ 'j.value' | json_text }}
    FROM OPENJSON(@payloads) AS j;
    IF EXISTS (SELECT 1 FROM @raw AS r WHERE r.type = 0)
    {{ arguments.reject("payloads", "must not hold a null") }}
    IF EXISTS (SELECT 1 FROM @raw AS r WHERE r.type <> 1)
    {{ arguments.reject("payloads", "must be an array of texts") }}

    BEGIN TRANSACTION;
    SET @now_at = {{ clock.now() }};
    {{ records.number_raw() }}
    INSERT INTO @record (ordinal, id, message_id)
    SELECT n.ordinal, n.id, {{ db._uuid }}(NEWID(), @now_at, n.id)
    FROM @numbered AS n;

    INSERT INTO {{ box.message }} (
        id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id, headers
    )
    SELECT r.id, r.message_id, @now_at, @due, @expires, 0, @priority, @topic, w.payload, @correlation_id, @headers
    FROM @record AS r
    INNER JOIN @raw AS w ON w.ordinal = r.ordinal
    ORDER BY r.id
    OPTION (KEEPFIXED PLAN);

    IF @due > @now_at
        INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic_key)
        SELECT @due, r.id, r.id, @expires, 0 - @priority, @topic + N'.'
        FROM @record AS r
        OPTION (KEEPFIXED PLAN);
    ELSE
        INSERT INTO {{ box.ready }} (lane, ticket, expires_at, topic_key)
        SELECT 0 - @priority, r.id, @expires, @topic + N'.'
        FROM @record AS r
        OPTION (KEEPFIXED PLAN);
    COMMIT TRANSACTION;

    {{ records.answer() }}
        SELECT CONVERT(bigint, r.ordinal) AS ordinal, r.id, r.message_id
        FROM @record AS r
        ORDER BY r.ordinal;
END;
