-- after: _check_key
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Notes that a message seen is being processed. Done and dead ones stay what they are.
-- message_id: 1 to 255 characters
-- source: 1 to 255 characters
-- returns: affected; 1 if the message is Processing now
-- errors: PB001
-- locks: message
-- role: producer
CREATE OR ALTER PROCEDURE {{ box.mark_processing }}
    @message_id nvarchar(max),
    @source nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @id bigint;
    DECLARE @affected int = 0;

    {{ arguments.check_by(box._check_key ~ " @message_id = @message_id, @source = @source") }}

    BEGIN TRANSACTION;
    SELECT @id = m.id
    FROM {{ box.message }} AS m WITH (FORCESEEK)
    WHERE m.source_key = CONVERT(nvarchar(256), @source + N'.')
        AND m.message_id_key = CONVERT(nvarchar(256), @message_id + N'.');
    -- A write that changes nothing locks the row in every engine.
    UPDATE {{ box.message }} WITH (ROWLOCK)
    SET last_seen_at = last_seen_at
    WHERE id = @id;
    IF @@ROWCOUNT > 0
        AND NOT EXISTS (SELECT 1 FROM {{ box.done }} AS n WITH (FORCESEEK) WHERE n.id = @id)
        AND NOT EXISTS (SELECT 1 FROM {{ box.dead }} AS d WITH (FORCESEEK) WHERE d.id = @id)
    BEGIN
        UPDATE {{ box.seen }} WITH (ROWLOCK) SET processing = 1 WHERE id = @id;
        UPDATE {{ box.message }} WITH (ROWLOCK) SET last_seen_at = {{ clock.now() }} WHERE id = @id;
        SET @affected = 1;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
