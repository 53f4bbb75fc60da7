{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/locks.sql" as locks with context %}

-- Writes one checked message that has a key of some kind: deduplicated, collapsed, placed. Under the locks of its
-- keys, so that only a transaction with the same key waits.
-- id: drawn by the caller; a duplicate's is that of the earlier message
-- returns: id, message_id, outcome; as output parameters
-- errors: none
-- locks: group, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._enqueue }}
    @id bigint OUTPUT,
    @message_id uniqueidentifier OUTPUT,
    @outcome nvarchar(20) OUTPUT,
    @now_at datetime2(6),
    @topic nvarchar(255),
    @payload nvarchar(max),
    @correlation_id nvarchar(255),
    @due_at datetime2(6),
    @group_id nvarchar(255),
    @priority smallint,
    @dedup_key nvarchar(255),
    @collapse_key nvarchar(255),
    @expires_at datetime2(6),
    @headers nvarchar(max),
    @created_at datetime2(6)
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @new_id bigint = @id;
    DECLARE @is_given bit = CASE WHEN @message_id IS NULL THEN 0 ELSE 1 END;
    DECLARE @window_seconds float = 0;
    DECLARE @is_entered bit = 0;
    DECLARE @ids nvarchar(max);
    DECLARE @removed int;

    SET @outcome = N'created';
    IF @is_given = 0
        SET @message_id = {{ db._uuid }}(NEWID(), @now_at, @id);
    IF @dedup_key IS NOT NULL
        SELECT @window_seconds = CONVERT(float, s.value)
        FROM {{ box.settings }} AS s
        WHERE s.name = N'dedup_window_seconds';

    IF @window_seconds > 0
    BEGIN
        {{ locks.wait(locks.key("dedup", "@dedup_key"), "dedup_key") | indent(4) }}
        UPDATE {{ box.dedup }} WITH (ROWLOCK)
        SET id = @id, message_id = @message_id, seen_at = @now_at
        WHERE dedup_key = @dedup_key + N'.'
            AND (
                id = @id
                OR seen_at <= DATEADD(
                    MICROSECOND, -CONVERT(int, (@window_seconds - FLOOR(@window_seconds)) * 1000000),
                    DATEADD(SECOND, -CONVERT(int, FLOOR(@window_seconds)), @now_at)
                )
            );
        SET @is_entered = CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END;
        IF @is_entered = 0
            SELECT @id = d.id, @message_id = d.message_id, @outcome = N'duplicate'
            FROM {{ box.dedup }} AS d WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
            WHERE d.dedup_key = @dedup_key + N'.';
        IF @is_entered = 0 AND @outcome = N'created'
        BEGIN
            INSERT INTO {{ box.dedup }} (dedup_key, id, message_id, seen_at)
            VALUES (@dedup_key + N'.', @id, @message_id, @now_at);
            SET @is_entered = 1;
        END;
    END;

    IF @is_given = 1 AND @outcome = N'created'
    BEGIN
        {{ locks.wait(locks.key("message_id", "@message_id"), "message_id") | indent(4) }}
        SELECT @id = m.id, @outcome = N'duplicate'
        FROM {{ box.message }} AS m WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE m.message_id = @message_id;
    END;
    IF @outcome = N'duplicate'
    BEGIN
        -- A key entered above for a message that turned out to exist already stands for the existing one.
        IF @is_entered = 1
            UPDATE {{ box.dedup }} WITH (ROWLOCK)
            SET id = @id
            WHERE dedup_key = @dedup_key + N'.' AND id = @new_id;
        RETURN;
    END;

    INSERT INTO {{ box.message }} (
        id, message_id, created_at, due_at, expires_at, attempt, priority, topic, payload, correlation_id, group_id,
        dedup_key, collapse_key, headers
    )
    VALUES (
        @id, @message_id, @created_at, @due_at, @expires_at, 0, @priority, @topic, @payload, @correlation_id, @group_id,
        @dedup_key, @collapse_key, @headers
    );
    SET @ids = CONCAT(N'[', @id, N']');
    EXEC {{ box._admit }} @ids = @ids;

    IF @collapse_key IS NOT NULL
    BEGIN
        EXEC @removed = {{ box._replace }} @newest = @ids;
        IF @removed > 0
            SET @outcome = N'collapsed';
    END;
END;
