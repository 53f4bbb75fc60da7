{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/causes.sql" as causes with context %}

-- Dead, expired and cancelled messages, each with its cause, a page at a time: which ones a cause of dead_causes has.
-- limit: from 1 to 10000
-- after_id: the last id of the page before
-- topic: only this one; null for all
-- returns: id, topic, cause; in id order
-- errors: PB001
-- locks: none
-- role: viewer
CREATE OR ALTER PROCEDURE {{ box.dead_letter_causes }}
    @limit int = 100,
    @after_id bigint = 0,
    @topic nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @changed int;
    DECLARE @letter TABLE (
        id bigint NOT NULL PRIMARY KEY,
        status nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        line nvarchar(max) COLLATE Latin1_General_100_BIN2,
        line_no int
    );
    DECLARE @line TABLE (
        no int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        original nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
        line nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
        from_at int NOT NULL,
        to_at int NOT NULL
    );
    DECLARE @cause TABLE (
        no int NOT NULL PRIMARY KEY,
        cause nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL
    );

    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}

    IF @topic IS NULL
        INSERT INTO @letter (id, status, topic_key)
        SELECT TOP (@limit) d.id, {{ causes.status("d") | indent(8) }}, d.topic_key
        FROM {{ box.dead }} AS d
        WHERE d.id > ISNULL(@after_id, 0)
        ORDER BY d.id;
    ELSE
        INSERT INTO @letter (id, status, topic_key)
        SELECT TOP (@limit) d.id, {{ causes.status("d") | indent(8) }}, d.topic_key
        FROM {{ box.dead }} AS d WITH (FORCESEEK ({{ key.ix_dead_topic }} (topic_key, id)))
        WHERE d.topic_key = CONVERT(nvarchar(256), LEFT(@topic, 256) + N'.') AND d.id > ISNULL(@after_id, 0)
        ORDER BY d.id;

    UPDATE l
    SET line = ISNULL(NULLIF({{ causes.normal("m.last_error") | indent(4) }}, N''), l.status)
    FROM @letter AS l
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = l.id;

    -- Once for each line: those that differ in their digits only are one by now.
    INSERT INTO @line (original, line, from_at, to_at)
    SELECT l.line, l.line, 0, 0
    FROM @letter AS l
    WHERE l.line IS NOT NULL
    GROUP BY l.line;

    UPDATE l
    SET line_no = n.no
    FROM @letter AS l
    INNER JOIN @line AS n ON n.original = l.line;

    {{ causes.unquote() }}
    {{ causes.locate() }}
    {{ causes.fold() }}

    SELECT l.id, LEFT(l.topic_key, LEN(l.topic_key) - 1) AS topic, c.cause
    FROM @letter AS l
    INNER JOIN @cause AS c ON c.no = l.line_no
    ORDER BY l.id;
END;
