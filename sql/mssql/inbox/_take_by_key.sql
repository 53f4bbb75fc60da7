-- after: _check_key
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/locks.sql" as locks with context %}

-- Takes a message out of wherever it is, unless it is done or dead: seen, waiting, or leased to anybody.
-- The caller has checked the key, and decides what becomes of the message, in the same transaction. Its group gets a new ticket at the end.
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
    {{ arguments.begin() }}

    DECLARE @found_id bigint;
    DECLARE @group_key nvarchar(256);
    {{ locks.variables() }}
    DECLARE @taken int;
    DECLARE @ids nvarchar(max);

    SET @id = NULL;
    SELECT @found_id = m.id, @group_key = m.group_id + N'.'
    FROM {{ box.message }} AS m WITH (FORCESEEK)
    WHERE m.source_key = CONVERT(nvarchar(256), @source + N'.')
        AND m.message_id_key = CONVERT(nvarchar(256), @message_id + N'.');
    IF @found_id IS NULL
        RETURN;
    IF @group_key IS NOT NULL
    BEGIN
        {{ locks.wait(locks.group("@group_key"), "group") | indent(4) }}
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
    IF EXISTS (SELECT 1 FROM {{ box.done }} AS n WITH (FORCESEEK) WHERE n.id = @found_id)
        OR EXISTS (SELECT 1 FROM {{ box.dead }} AS d WITH (FORCESEEK) WHERE d.id = @found_id)
        RETURN;
    DELETE FROM {{ box.seen }} WHERE id = @found_id;
    SET @taken = @@ROWCOUNT;
    IF @taken = 0
    BEGIN
        SET @ids = CONCAT(N'[', @found_id, N']');
        EXEC @taken = {{ box._withdraw }} @ids = @ids;
    END;
    IF @taken > 0
        SET @id = @found_id;
END;
