-- after: _check_key
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Enqueues a message whose key exists. What is done stays as it is, what is dead stays dead; what was only seen
-- is placed; what waits takes the new content, and a new place if its time, topic or priority changed. A message
-- that somebody works on takes the new content for its next try.
-- id: drawn by the caller, and handed back as that of the message that exists
-- returns: id, outcome, hash_mismatch; as output parameters, outcome is updated or done, or null if the key has just gone
-- errors: none
-- locks: group, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._renew }}
    @id bigint OUTPUT,
    @outcome nvarchar(20) OUTPUT,
    @hash_mismatch bit OUTPUT,
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
    @headers nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @found_id bigint;
    DECLARE @was_seen bit;
    DECLARE @moves bit = 0;
    DECLARE @found int;
    DECLARE @taken int = 0;
    DECLARE @ids nvarchar(max);
    DECLARE @old_topic nvarchar(255);
    DECLARE @buried TABLE (topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2);

    SELECT @found_id = m.id
    FROM {{ box.message }} AS m WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE m.source_key = @source_key AND m.message_id_key = @message_id_key;
    -- A write that changes nothing locks the row in every engine. By its id: whoever locks it by the key first meets
    -- those who delete it crosswise.
    UPDATE {{ box.message }} WITH (ROWLOCK)
    SET last_seen_at = last_seen_at
    WHERE id = @found_id;
    SET @found = @@ROWCOUNT;
    SET @outcome = NULL;
    IF @found = 0
        RETURN;

    SELECT
        @id = m.id,
        @old_topic = m.topic,
        @hash_mismatch = CASE
            WHEN m.hash <> @hash OR DATALENGTH(m.hash) <> DATALENGTH(@hash) THEN 1
            ELSE 0
        END,
        @moves = CASE
            WHEN m.due_at > @now_at OR @due_at > @now_at THEN 1
            WHEN m.topic + N'.' <> @topic + N'.' OR m.priority <> @priority THEN 1
            WHEN m.expires_at <> @expires_at THEN 1
            WHEN m.expires_at IS NULL AND @expires_at IS NOT NULL THEN 1
            WHEN m.expires_at IS NOT NULL AND @expires_at IS NULL THEN 1
            -- Due, but not yet promoted: its place has the old time.
            WHEN EXISTS (
                SELECT 1
                FROM {{ box.scheduled }} AS s WITH (READUNCOMMITTED, FORCESEEK)
                WHERE s.due_at = m.due_at AND s.no = m.id
            ) THEN 1
            ELSE 0
        END
    FROM {{ box.message }} AS m WITH (FORCESEEK)
    WHERE m.id = @found_id;
    SET @ids = CONCAT(N'[', @id, N']');

    IF EXISTS (SELECT 1 FROM {{ box.done }} AS n WITH (FORCESEEK) WHERE n.id = @id)
    BEGIN
        SET @outcome = N'done';
        RETURN;
    END;
    SET @outcome = N'updated';

    DELETE FROM {{ box.seen }} WHERE id = @id;
    SET @was_seen = CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END;
    IF @moves = 1 AND @was_seen = 0
        EXEC @taken = {{ box._withdraw }} @ids = @ids;

    UPDATE {{ box.message }} WITH (ROWLOCK)
    SET
        topic = @topic,
        payload = @payload,
        hash = @hash,
        due_at = @due_at,
        priority = @priority,
        headers = @headers,
        expires_at = @expires_at,
        group_id = CASE WHEN @was_seen = 1 THEN @group_id ELSE group_id END,
        collapse_key = CASE WHEN @was_seen = 1 THEN @collapse_key ELSE collapse_key END,
        last_seen_at = @now_at
    WHERE id = @id;

    IF @was_seen = 1
    BEGIN
        -- Under a ticket of its own: its id may come before members of its group that are out already.
        EXEC {{ box._put_back }} @ids = @ids;
        IF @collapse_key IS NOT NULL
            EXEC {{ box._replace }} @newest = @ids;
    END;
    IF @taken > 0
        EXEC {{ box._put_back }} @ids = @ids;
    IF @was_seen = 0 AND @taken = 0 AND (@old_topic IS NULL OR @old_topic + N'.' <> (@topic + N'.') COLLATE Latin1_General_100_BIN2)
    BEGIN
        -- Skipping what is just being settled, replayed or discarded: its owner may be waiting for the message.
        UPDATE l
        SET topic_key = @topic + N'.'
        FROM {{ box.lease }} AS l WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE l.id = @id;

        INSERT INTO @buried (topic_key)
        SELECT d.topic_key
        FROM {{ box.dead }} AS d WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE d.id = @id;
        IF EXISTS (SELECT 1 FROM @buried)
        BEGIN
            UPDATE {{ box.dead }} WITH (ROWLOCK) SET topic_key = @topic + N'.' WHERE id = @id;
            IF @@ROWCOUNT > 0
                INSERT INTO {{ box.tally }} (topic_key, done, dead)
                SELECT b.topic_key, 0, -1 FROM @buried AS b WHERE b.topic_key IS NOT NULL
                UNION ALL
                SELECT @topic + N'.', 0, 1;
        END;
    END;
END;
