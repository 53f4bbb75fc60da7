-- Makes messages dead that the caller has just taken out of where they were. Their groups are the caller's to
-- give a new ticket.
-- error: kept as last_error; null leaves what is there
-- returns: none
-- errors: none
-- locks: message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._bury }}
    @ids nvarchar(max),
    @error nvarchar(max),
    @expired bit
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);

    INSERT INTO @wanted (id)
    SELECT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j;

    IF @error IS NOT NULL
        UPDATE m
        SET last_error = @error
        FROM @wanted AS w
        INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = w.id;

    INSERT INTO {{ box.dead }} (id, died_at, expired, topic_key)
    SELECT m.id, @now_at, @expired, m.topic + N'.'
    FROM @wanted AS w
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = w.id;
{% if box_name == "outbox" %}

    IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
        EXEC {{ db._join_count }} @ids = @ids, @state = N'failed';
{% endif %}
END;
