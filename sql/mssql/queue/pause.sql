-- Stops handing out messages of a topic; leases that are out stay good.
-- topic: 1 to 255 characters; null for the whole box
-- returns: affected; 0 if it was paused already
-- errors: PB001
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.pause }}
    @topic nvarchar(max) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    IF LEN(@topic + N'.') = 1 OR LEN((@topic + N'.') COLLATE Latin1_General_100_BIN2) > 256
        EXEC {{ db._reject }} @argument = N'topic', @rule = N'must have from 1 to 255 characters';

    INSERT INTO {{ box.paused }} (topic_key, paused_at)
    SELECT ISNULL(@topic, N'') + N'.', {{ db._now }}()
    WHERE NOT EXISTS (
        SELECT 1 FROM {{ box.paused }} AS p WITH (UPDLOCK, SERIALIZABLE) WHERE p.topic_key = ISNULL(@topic, N'') + N'.'
    );
    SELECT @@ROWCOUNT AS affected;
END;
