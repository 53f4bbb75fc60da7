-- Turns away a key that no message can have.
-- message_id: 1 to 255 characters
-- source: 1 to 255 characters
-- returns: none
-- errors: PB001
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._check_key }}
    @message_id nvarchar(max),
    @source nvarchar(max)
AS
BEGIN
    SET NOCOUNT ON;

    IF @message_id IS NULL OR LEN(@message_id + N'.') = 1
        EXEC {{ db._reject }} @argument = N'message_id', @rule = N'must not be null or empty';
    IF LEN((@message_id + N'.') COLLATE Latin1_General_100_BIN2) > 256
        EXEC {{ db._reject }} @argument = N'message_id', @rule = N'must not be longer than 255 characters';
    IF @source IS NULL OR LEN(@source + N'.') = 1
        EXEC {{ db._reject }} @argument = N'source', @rule = N'must not be null or empty';
    IF LEN((@source + N'.') COLLATE Latin1_General_100_BIN2) > 256
        EXEC {{ db._reject }} @argument = N'source', @rule = N'must not be longer than 255 characters';
END;
