-- after: _enqueue
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/records.sql" as records with context %}
{% import "macros/times.sql" as times with context %}

-- Writes one message, in the caller's transaction: it is there exactly if that commits.
-- A plain insert for its neighbours: only enqueues of the same key ever wait for each other.
-- topic: 1 to 255 characters
-- payload: not null; may be empty
-- correlation_id: up to 255 characters
-- due_at: not handed out before; null or past is now
-- message_id: not the nil uuid; one that exists makes the call a duplicate; null draws a time-ordered one
-- group_id: FIFO key, 1 to 255 characters
-- priority: from -32768 to 32767, higher first
-- dedup_key: 1 to 255 characters; a second one within dedup_window_seconds is a duplicate
-- collapse_key: 1 to 255 characters; replaces older waiting messages with the same key
-- expires_at: not handed out from then on
-- headers: a JSON object
-- created_at: a migrated message's own time; null is now
-- delay_seconds: in place of due_at, seconds from now by the server's clock; from 0, which is now, to 1000000000
-- returns: id, message_id, outcome; outcome is created, collapsed or duplicate
-- errors: PB001
-- locks: group, message
-- role: producer
CREATE OR ALTER PROCEDURE {{ box.enqueue }}
    @topic nvarchar(max),
    @payload nvarchar(max),
    @correlation_id nvarchar(max) = NULL,
    @due_at datetimeoffset(6) = NULL,
    @message_id uniqueidentifier = NULL,
    @group_id nvarchar(max) = NULL,
    @priority int = 0,
    @dedup_key nvarchar(max) = NULL,
    @collapse_key nvarchar(max) = NULL,
    @expires_at datetimeoffset(6) = NULL,
    @headers nvarchar(max) = NULL,
    @created_at datetimeoffset(6) = NULL,
    @delay_seconds decimal(19, 3) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @id bigint;
    DECLARE @outcome nvarchar(20) = N'created';
    DECLARE @now_at datetime2(6);
    DECLARE @due datetime2(6) = CONVERT(datetime2(6), SWITCHOFFSET(@due_at, '+00:00'));
    DECLARE @expires datetime2(6) = CONVERT(datetime2(6), SWITCHOFFSET(@expires_at, '+00:00'));
    DECLARE @created datetime2(6) = CONVERT(datetime2(6), SWITCHOFFSET(@created_at, '+00:00'));

    SET @priority = ISNULL(@priority, 0);
    IF EXISTS (
        SELECT 1
        FROM {{ box._valid }} (
            @topic, @payload, @correlation_id, @dedup_key, @due_at, @group_id, @priority, @collapse_key, @expires_at,
            @headers, @created_at, @delay_seconds
        ) AS v
        WHERE v.broken IS NOT NULL
    )
    {{ arguments.check_by(box._explain ~ """
            @topic, @payload, @correlation_id, @dedup_key, @due_at, @group_id, @priority, @collapse_key, @expires_at,
            @headers, @created_at, @delay_seconds""") }}
    IF @message_id = '00000000-0000-0000-0000-000000000000'
    {{ arguments.reject("message_id", "must not be the nil uuid") }}

    BEGIN TRANSACTION;
    SET @now_at = {{ clock.now() }};
    IF @delay_seconds > 0
        SET @due = {{ times.after("@now_at", "@delay_seconds") | indent(8) }};
    SET @created = ISNULL(@created, @now_at);
    SET @id = NEXT VALUE FOR {{ box._ids }};
    IF @message_id IS NULL AND @group_id IS NULL AND @dedup_key IS NULL AND @collapse_key IS NULL
    BEGIN
        SET @message_id = {{ db._uuid }}(NEWID(), @now_at, @id);
        INSERT INTO {{ box.message }} (
            id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id, headers
        )
        VALUES (
            @id, @message_id, @created, @due, @expires, 0, @priority, @topic, @payload, @correlation_id, @headers
        );
        IF @due > @now_at
            INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic_key)
            VALUES (@due, @id, @id, @expires, 0 - @priority, @topic + N'.');
        ELSE
            INSERT INTO {{ box.ready }} (lane, ticket, expires_at, topic_key)
            VALUES (0 - @priority, @id, @expires, @topic + N'.');
    END
    ELSE
        EXEC {{ box._enqueue }}
            @id = @id OUTPUT, @message_id = @message_id OUTPUT, @outcome = @outcome OUTPUT, @now_at = @now_at,
            @topic = @topic, @payload = @payload, @correlation_id = @correlation_id, @due_at = @due,
            @group_id = @group_id, @priority = @priority, @dedup_key = @dedup_key, @collapse_key = @collapse_key,
            @expires_at = @expires, @headers = @headers, @created_at = @created;
    COMMIT TRANSACTION;

    {{ records.answer() }}
        SELECT @id AS id, @message_id AS message_id, @outcome AS outcome;
END;
