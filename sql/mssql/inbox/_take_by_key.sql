-- after: _check_key

-- Takes a message out of wherever it is, unless it is done or dead: seen, waiting, or leased to anybody.
-- The caller decides what becomes of it, in the same transaction. Its group gets a new ticket at the end.
-- id: the answer; null if there is nothing to take
-- returns: bigint; in id, null if there is nothing to take
-- errors: PB001
-- locks: group, lease, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._take_by_key }}
    @message_id nvarchar(max),
    @source nvarchar(max),
    @id bigint OUTPUT
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @found_id bigint;
    DECLARE @group_key nvarchar(256);
    DECLARE @key bigint;
    DECLARE @resource nvarchar(255);
    DECLARE @got int;
    DECLARE @ids nvarchar(max);

    SET @id = NULL;
    EXEC {{ box._check_key }} @message_id = @message_id, @source = @source;
    SELECT @found_id = m.id, @group_key = m.group_id + N'.'
    FROM {{ box.message }} AS m
    WHERE m.source_key = CONVERT(nvarchar(256), @source + N'.')
        AND m.message_id_key = CONVERT(nvarchar(256), @message_id + N'.');
    IF @found_id IS NULL
        RETURN;
    IF @group_key IS NOT NULL
    BEGIN
        SET @key = CONVERT(bigint, CONVERT(binary(8), HASHBYTES(
            'SHA2_256', CONCAT({{ (schema ~ "." ~ box_name ~ "::") | literal }}, @group_key)
        )));
        SET @resource = CONVERT(nvarchar(255), @key);
        IF SERVERPROPERTY('Babelfish') IS NULL
            EXEC @got = sys.sp_getapplock
                @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;
        ELSE
            EXEC sys.sp_executesql
                N'SELECT @got = COUNT(*) FROM (SELECT pg_catalog.pg_advisory_xact_lock(@key) AS taken) AS l;',
                N'@key bigint, @got int OUTPUT', @key = @key, @got = @got OUTPUT;
        IF @got < 0
            THROW 50001, N'group: chosen as the victim of a deadlock, try again', 1;
    END;

    DELETE FROM {{ box.lease }} WHERE id = @found_id;
    IF @@ROWCOUNT > 0
    BEGIN
        SET @id = @found_id;
        RETURN;
    END;

    -- A write that changes nothing locks the row in every engine.
    UPDATE {{ box.message }} WITH (ROWLOCK)
    SET last_seen_at = last_seen_at
    WHERE id = @found_id;
    IF EXISTS (SELECT 1 FROM {{ box.done }} AS n WHERE n.id = @found_id)
        OR EXISTS (SELECT 1 FROM {{ box.dead }} AS d WHERE d.id = @found_id)
        RETURN;
    DELETE FROM {{ box.seen }} WHERE id = @found_id;
    SET @got = @@ROWCOUNT;
    IF @got = 0
    BEGIN
        SET @ids = CONCAT(N'[', @found_id, N']');
        EXEC @got = {{ box._withdraw }} @ids = @ids;
    END;
    IF @got > 0
        SET @id = @found_id;
END;
