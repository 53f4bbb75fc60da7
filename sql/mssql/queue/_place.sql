-- Puts ungrouped messages, held by nobody, at the tail of what is ready or among what is scheduled.
-- A sequence cannot be asked for values in a certain order in both engines: so they are drawn first, then ranked.
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._place }}
    @ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @due TABLE (
        place int NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        id bigint NOT NULL,
        expires_at datetime2(6),
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );
    DECLARE @drawn TABLE (ticket bigint NOT NULL PRIMARY KEY);

    INSERT INTO @wanted (id)
    SELECT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j;

    INSERT INTO @due (place, lane, id, expires_at, topic_key)
    SELECT ROW_NUMBER() OVER (ORDER BY m.id), 0 - m.priority, m.id, m.expires_at, m.topic + N'.'
    FROM @wanted AS w
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = w.id
    WHERE m.due_at IS NULL OR m.due_at <= @now_at;

    INSERT INTO @drawn (ticket)
    SELECT NEXT VALUE FOR {{ box._ids }}
    FROM @due;

    INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic_key)
    SELECT d.lane, t.ticket, d.id, d.expires_at, d.topic_key
    FROM @due AS d
    INNER JOIN (
        SELECT n.ticket, ROW_NUMBER() OVER (ORDER BY n.ticket) AS place
        FROM @drawn AS n
    ) AS t ON t.place = d.place;

    INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic_key)
    SELECT m.due_at, m.id, m.id, m.expires_at, 0 - m.priority, m.topic + N'.'
    FROM @wanted AS w
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = w.id
    WHERE m.due_at > @now_at;
END;
