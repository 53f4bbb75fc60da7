-- after: _renew
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/locks.sql" as locks with context %}

-- Writes one checked message: entered if its key is new, renewed if not, and placed. Under the key's lock, so
-- that only a transaction with the same key waits.
-- id: drawn by the caller; handed back as the earlier message's if there is one
-- returns: id, outcome, hash_mismatch; as output parameters
-- errors: none
-- locks: group, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._enqueue }}
    @id bigint OUTPUT,
    @outcome nvarchar(20) OUTPUT,
    @hash_mismatch bit OUTPUT,
    @now_at datetime2(6),
    @topic nvarchar(255),
    @source_key nvarchar(256),
    @message_id_key nvarchar(256),
    @payload nvarchar(max),
    @hash varbinary(max),
    @due_at datetime2(6),
    @group_id nvarchar(255),
    @priority smallint,
    @collapse_key nvarchar(255),
    @expires_at datetime2(6),
    @headers nvarchar(max),
    @received_at datetime2(6)
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @removed int;
    DECLARE @ids nvarchar(max);

    {{ locks.wait(locks.message_key("@source_key", "@message_id_key"), "message_id") }}
    SET @outcome = NULL;
    IF EXISTS (
        SELECT 1
        FROM {{ box.message }} AS m WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE m.source_key = @source_key AND m.message_id_key = @message_id_key
    )
        EXEC {{ box._renew }}
            @id = @id OUTPUT, @outcome = @outcome OUTPUT, @hash_mismatch = @hash_mismatch OUTPUT, @topic = @topic,
            @source_key = @source_key, @message_id_key = @message_id_key, @payload = @payload, @hash = @hash,
            @due_at = @due_at, @group_id = @group_id, @priority = @priority, @collapse_key = @collapse_key,
            @expires_at = @expires_at, @headers = @headers;
    IF @outcome IS NOT NULL
        RETURN;

    -- New, or gone meanwhile.
    INSERT INTO {{ box.message }} (
        id, first_seen_at, last_seen_at, due_at, expires_at, attempt, priority, source_key, message_id_key, topic,
        payload, hash, group_id, collapse_key, headers
    )
    VALUES (
        @id, @received_at, @now_at, @due_at, @expires_at, 0, @priority, @source_key, @message_id_key, @topic,
        @payload, @hash, @group_id, @collapse_key, @headers
    );
    SET @outcome = N'created';
    SET @hash_mismatch = 0;
    SET @ids = CONCAT(N'[', @id, N']');
    EXEC {{ box._admit }} @ids = @ids;

    IF @collapse_key IS NOT NULL
    BEGIN
        EXEC @removed = {{ box._replace }} @newest = @ids;
        IF @removed > 0
            SET @outcome = N'collapsed';
    END;
END;
