{% import "macros/arguments.sql" as arguments with context %}

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
    {{ arguments.begin() }}

    IF LEN(@topic + N'.') = 1 OR LEN((@topic + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("topic", "must have from 1 to 255 characters") }}

    DELETE FROM {{ box.paused }}
    WHERE topic_key = ISNULL(@topic, N'') + N'.';
    SELECT @@ROWCOUNT AS affected;
END;
