-- The topics to hand out while some are paused: those asked for, or all that have something ready, less the
-- paused ones. Hops from topic to topic along the index, so its cost is the number of topics.
-- topics: a JSON array; null for all
-- returns: text[]; here the column topic_key
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER FUNCTION {{ box._unpaused }}(@topics nvarchar(max))
RETURNS @found TABLE (topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY)
AS
BEGIN
    DECLARE @topic_key nvarchar(256) = N'';

    IF @topics IS NULL
    BEGIN
        WHILE @topic_key IS NOT NULL
        BEGIN
            SET @topic_key = (
                SELECT TOP (1) r.topic_key
                FROM {{ box.ready }} AS r
                    WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK ({{ key.ix_ready_topic }} (topic_key)))
                WHERE r.topic_key > @topic_key
                ORDER BY r.topic_key, r.lane, r.ticket
            );
            IF @topic_key IS NOT NULL
                INSERT INTO @found (topic_key) VALUES (@topic_key);
        END;
    END
    ELSE
        INSERT INTO @found (topic_key)
        SELECT DISTINCT t.topic + N'.'
        FROM (
            SELECT {{ 'j.value' | json_text }} COLLATE Latin1_General_100_BIN2 AS topic
            FROM OPENJSON(@topics) AS j
        ) AS t
        WHERE LEN(t.topic + N'.') <= 256;

    DELETE FROM @found
    WHERE topic_key IN (SELECT p.topic_key FROM {{ box.paused }} AS p);
    RETURN;
END;
