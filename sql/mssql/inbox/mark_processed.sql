-- after: _take_by_key
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Marks a message done by its key, whether it was only seen, waits, or is leased to somebody.
-- message_id: 1 to 255 characters
-- source: 1 to 255 characters
-- returns: affected; 0 if it is unknown, done or dead, or just being claimed
-- errors: PB001
-- locks: group, lease, message
-- role: producer
CREATE OR ALTER PROCEDURE {{ box.mark_processed }}
    @message_id nvarchar(max),
    @source nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @id bigint;
    DECLARE @affected int = 0;
    DECLARE @topic nvarchar(255);
    DECLARE @groups nvarchar(max);

    {{ arguments.check_by(box._check_key ~ " @message_id = @message_id, @source = @source") }}

    BEGIN TRANSACTION;
    EXEC {{ box._take_by_key }} @message_id = @message_id, @source = @source, @id = @id OUTPUT;
    IF @id IS NOT NULL
    BEGIN
        SET @affected = 1;
        INSERT INTO {{ box.done }} (id, processed_at) VALUES (@id, {{ clock.now() }});

        SET @topic = (SELECT m.topic FROM {{ box.message }} AS m WITH (FORCESEEK) WHERE m.id = @id);
        IF @topic IS NOT NULL
            INSERT INTO {{ box.tally }} (topic_key, done) VALUES (@topic + N'.', 1);

        SET @groups = (
            SELECT m.group_id + N'.' AS group_key
            FROM {{ box.message }} AS m WITH (FORCESEEK)
            WHERE m.id = @id AND m.group_id IS NOT NULL
            FOR JSON PATH
        );
        IF @groups IS NOT NULL
            EXEC {{ box._regroup }} @groups = @groups;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
