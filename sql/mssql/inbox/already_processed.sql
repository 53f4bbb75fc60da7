-- after: _check_key
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}

-- Whether this message is done. On first sight it is noted as Seen; of any number of callers at once one notes it.
-- message_id: 1 to 255 characters
-- source: 1 to 255 characters
-- hash: kept if none is known; a different one sets hash_mismatch
-- returns: already_processed, hash_mismatch
-- errors: PB001
-- locks: message
-- role: producer
CREATE OR ALTER PROCEDURE {{ box.already_processed }}
    @message_id nvarchar(max),
    @source nvarchar(max),
    @hash varbinary(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6);
    DECLARE @id bigint;
    DECLARE @is_done bit = 0;
    DECLARE @is_mismatch bit = 0;
    DECLARE @is_written bit = 0;
    DECLARE @source_key nvarchar(256);
    DECLARE @message_id_key nvarchar(256);

    {{ arguments.check_by(box._check_key ~ " @message_id = @message_id, @source = @source") }}
    SET @source_key = @source + N'.';
    SET @message_id_key = @message_id + N'.';

    BEGIN TRANSACTION;
    SET @now_at = {{ clock.now() }};
    SELECT @id = m.id
    FROM {{ box.message }} AS m WITH (FORCESEEK)
    WHERE m.source_key = @source_key AND m.message_id_key = @message_id_key;
    IF @id IS NULL
    BEGIN
        {{ locks.wait(locks.message_key("@source_key", "@message_id_key"), "message_id") | indent(4) }}
        SELECT @id = m.id
        FROM {{ box.message }} AS m WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE m.source_key = @source_key AND m.message_id_key = @message_id_key;
        IF @id IS NULL
        BEGIN
            SET @is_written = 1;
            SET @id = NEXT VALUE FOR {{ box._ids }};
            INSERT INTO {{ box.message }} (
                id, first_seen_at, last_seen_at, attempt, priority, source_key, message_id_key, hash
            )
            VALUES (@id, @now_at, @now_at, 0, 0, @source_key, @message_id_key, @hash);
            INSERT INTO {{ box.seen }} (id, processing) VALUES (@id, 0);
        END;
    END;

    IF @is_written = 0
    BEGIN
        SELECT
            @is_mismatch = CASE
                WHEN m.hash <> @hash OR DATALENGTH(m.hash) <> DATALENGTH(@hash) THEN 1
                ELSE 0
            END
        FROM {{ box.message }} AS m WITH (FORCESEEK)
        WHERE m.id = @id;
        IF EXISTS (SELECT 1 FROM {{ box.done }} AS n WITH (FORCESEEK) WHERE n.id = @id)
            SET @is_done = 1;
        IF @is_done = 0
            UPDATE {{ box.message }} WITH (ROWLOCK)
            SET last_seen_at = @now_at, hash = COALESCE(hash, @hash)
            WHERE id = @id;
    END;
    COMMIT TRANSACTION;

    SELECT @is_done AS already_processed, @is_mismatch AS hash_mismatch;
END;
