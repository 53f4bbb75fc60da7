-- after: _enqueue
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/records.sql" as records with context %}
{% import "macros/times.sql" as times with context %}

-- Takes one message in, once per source and message_id, in the caller's transaction. A repeated one that is not
-- done brings its new topic, payload, hash, due time, priority, headers and expiry; a done one stays untouched.
-- topic: 1 to 255 characters
-- source: 1 to 255 characters
-- message_id: the sender's, 1 to 255 characters
-- payload: not null; may be empty
-- hash: a different one than before sets hash_mismatch
-- due_at: not handed out before; null or past is now
-- group_id: FIFO key, 1 to 255 characters
-- priority: from -32768 to 32767, higher first
-- collapse_key: 1 to 255 characters; replaces older waiting messages with the same key
-- expires_at: not handed out from then on
-- headers: a JSON object
-- received_at: a migrated message's own time, kept as first_seen_at; null is now
-- delay_seconds: in place of due_at, seconds from now by the server's clock; from 0, which is now, to 1000000000
-- returns: id, outcome, hash_mismatch; outcome is created, collapsed, updated or done
-- errors: PB001
-- locks: group, message
-- role: producer
CREATE OR ALTER PROCEDURE {{ box.enqueue }}
    @topic nvarchar(max),
    @source nvarchar(max),
    @message_id nvarchar(max),
    @payload nvarchar(max),
    @hash varbinary(max) = NULL,
    @due_at datetimeoffset(6) = NULL,
    @group_id nvarchar(max) = NULL,
    @priority int = 0,
    @collapse_key nvarchar(max) = NULL,
    @expires_at datetimeoffset(6) = NULL,
    @headers nvarchar(max) = NULL,
    @received_at datetimeoffset(6) = NULL,
    @delay_seconds decimal(19, 3) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @id bigint;
    DECLARE @outcome nvarchar(20);
    DECLARE @hash_mismatch bit;
    DECLARE @now_at datetime2(6);
    DECLARE @source_key nvarchar(256);
    DECLARE @message_id_key nvarchar(256);
    DECLARE @due datetime2(6) = CONVERT(datetime2(6), SWITCHOFFSET(@due_at, '+00:00'));
    DECLARE @expires datetime2(6) = CONVERT(datetime2(6), SWITCHOFFSET(@expires_at, '+00:00'));
    DECLARE @received datetime2(6) = CONVERT(datetime2(6), SWITCHOFFSET(@received_at, '+00:00'));

    SET @priority = ISNULL(@priority, 0);
    IF EXISTS (
        SELECT 1
        FROM {{ box._valid }} (
            @topic, @payload, @source, @message_id, @due_at, @group_id, @priority, @collapse_key, @expires_at,
            @headers, @received_at, @delay_seconds
        ) AS v
        WHERE v.broken IS NOT NULL
    )
    {{ arguments.check_by(box._explain ~ """
            @topic, @payload, @source, @message_id, @due_at, @group_id, @priority, @collapse_key, @expires_at,
            @headers, @received_at, @delay_seconds""") }}
    SET @source_key = @source + N'.';
    SET @message_id_key = @message_id + N'.';

    BEGIN TRANSACTION;
    SET @now_at = {{ clock.now() }};
    IF @delay_seconds > 0
        SET @due = {{ times.after("@now_at", "@delay_seconds") | indent(8) }};
    SET @received = ISNULL(@received, @now_at);
    SET @id = NEXT VALUE FOR {{ box._ids }};
    EXEC {{ box._enqueue }}
        @id = @id OUTPUT, @outcome = @outcome OUTPUT, @hash_mismatch = @hash_mismatch OUTPUT, @now_at = @now_at,
        @topic = @topic, @source_key = @source_key, @message_id_key = @message_id_key, @payload = @payload,
        @hash = @hash, @due_at = @due, @group_id = @group_id, @priority = @priority, @collapse_key = @collapse_key,
        @expires_at = @expires, @headers = @headers, @received_at = @received;
    COMMIT TRANSACTION;

    {{ records.answer() }}
        SELECT @id AS id, @outcome AS outcome, @hash_mismatch AS hash_mismatch;
END;
