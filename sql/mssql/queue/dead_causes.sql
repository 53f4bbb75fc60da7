{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/causes.sql" as causes with context %}

-- Dead, expired and cancelled messages by topic and cause. The cause is the first line of the error or the reason, in
-- which numbers, ids, hex, quoted text, paths and addresses are replaced, so that one fault is one row: # for what has
-- digits, ? for what was quoted, <path>, <address>. Without an error it is the status.
-- The 5000 that died last are read. If there are more, a last row says so: without topic, messages and sample_id,
-- newest_died_at being when the next of them died.
-- limit: from 1 to 10000
-- returns: topic, cause, messages, oldest_died_at, newest_died_at, sample_id; most messages first
-- errors: PB001
-- locks: none
-- role: viewer
CREATE OR ALTER PROCEDURE {{ box.dead_causes }}
    @limit int = 100
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @changed int;
    DECLARE @more_at datetime2(6);
    DECLARE @letter TABLE (
        place int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        id bigint NOT NULL,
        died_at datetime2(6) NOT NULL,
        status nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @line TABLE (
        no int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        line nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
        messages bigint NOT NULL,
        oldest_died_at datetime2(6) NOT NULL,
        newest_died_at datetime2(6) NOT NULL,
        sample_id bigint NOT NULL,
        from_at int NOT NULL,
        to_at int NOT NULL
    );
    DECLARE @cause TABLE (
        no int NOT NULL PRIMARY KEY,
        cause nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL
    );

    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}

    INSERT INTO @letter (id, died_at, status, topic_key)
    SELECT TOP (5001)
        d.id, d.died_at,
        {{ causes.status("d") | indent(4) }},
        d.topic_key
    FROM {{ box.dead }} AS d WITH (FORCESEEK ({{ key.ix_dead_age }} (died_at)))
    WHERE d.died_at >= CONVERT(datetime2(6), '0001-01-01')
    ORDER BY d.died_at DESC;
    SET @more_at = (SELECT l.died_at FROM @letter AS l WHERE l.place = 5001);

    -- Once for each line: those that differ in their digits only are one by now.
    INSERT INTO @line (topic_key, line, messages, oldest_died_at, newest_died_at, sample_id, from_at, to_at)
    SELECT n.topic_key, n.line, COUNT_BIG(*), MIN(n.died_at), MAX(n.died_at), MAX(n.id), 0, 0
    FROM (
        SELECT
            l.topic_key, l.id, l.died_at,
            ISNULL(NULLIF({{ causes.normal("m.last_error") | indent(8) }}, N''), l.status) AS line
        FROM @letter AS l
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = l.id
        WHERE l.place <= 5000
    ) AS n
    GROUP BY n.topic_key, n.line;

    {{ causes.unquote() }}
    {{ causes.locate() }}

    {{ causes.fold() }}

    SELECT a.topic, a.cause, a.messages, a.oldest_died_at, a.newest_died_at, a.sample_id
    FROM (
        SELECT 0 AS place, b.topic, b.cause, b.messages, b.oldest_died_at, b.newest_died_at, b.sample_id
        FROM (
            SELECT TOP (@limit)
                LEFT(l.topic_key, LEN(l.topic_key) - 1) AS topic, c.cause, SUM(l.messages) AS messages,
                MIN(l.oldest_died_at) AS oldest_died_at, MAX(l.newest_died_at) AS newest_died_at,
                MAX(l.sample_id) AS sample_id
            FROM @line AS l
            INNER JOIN @cause AS c ON c.no = l.no
            GROUP BY l.topic_key, c.cause
            ORDER BY SUM(l.messages) DESC, MAX(l.newest_died_at) DESC, MAX(l.sample_id) DESC
        ) AS b
        UNION ALL
        SELECT 1, NULL, N'older ones, not looked at', NULL, NULL, @more_at, NULL
        WHERE @more_at IS NOT NULL
    ) AS a
    ORDER BY a.place, a.messages DESC, a.newest_died_at DESC, a.sample_id DESC;
END;
