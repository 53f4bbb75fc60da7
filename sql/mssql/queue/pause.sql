{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

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
    {{ arguments.begin() }}

    IF LEN(@topic + N'.') = 1 OR LEN((@topic + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("topic", "must have from 1 to 255 characters") }}

    INSERT INTO {{ box.paused }} (topic_key, paused_at)
    SELECT ISNULL(@topic, N'') + N'.', {{ clock.now() }}
    WHERE NOT EXISTS (
        SELECT 1 FROM {{ box.paused }} AS p WITH (UPDLOCK, SERIALIZABLE) WHERE p.topic_key = ISNULL(@topic, N'') + N'.'
    );
    SELECT @@ROWCOUNT AS affected;
END;
