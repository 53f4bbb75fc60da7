-- Hands out again what pause has stopped; each topic and the whole box are resumed by themselves.
-- topic: 1 to 255 characters; null for the whole box
-- returns: affected; 0 if it was not paused
-- errors: PB001
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.resume }}
    @topic nvarchar(max) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    IF LEN(@topic + N'.') = 1 OR LEN((@topic + N'.') COLLATE Latin1_General_100_BIN2) > 256
        EXEC {{ db._reject }} @argument = N'topic', @rule = N'must have from 1 to 255 characters';

    DELETE FROM {{ box.paused }}
    WHERE topic_key = ISNULL(@topic, N'') + N'.';
    SELECT @@ROWCOUNT AS affected;
END;
