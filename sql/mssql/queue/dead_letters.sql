{% import "macros/arguments.sql" as arguments with context %}

-- Dead, expired and cancelled messages, a page at a time.
-- limit: from 1 to 10000
-- after_id: the last id of the page before
-- topic: only this one; null for all
{% if kind == "inbox" %}
-- returns: id, message_id, source, topic, payload, hash, group_id, priority, collapse_key, headers, status, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, died_at; in id order
{% else %}
-- returns: id, message_id, topic, payload, correlation_id, group_id, priority, dedup_key, collapse_key, headers, status, attempt, created_at, due_at, expires_at, last_error, died_at; in id order
{% endif %}
-- errors: PB001
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.dead_letters }}
    @limit int = 100,
    @after_id bigint = 0,
    @topic nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @page TABLE (id bigint NOT NULL PRIMARY KEY);

    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}

    IF @topic IS NULL
        INSERT INTO @page (id)
        SELECT TOP (@limit) d.id
        FROM {{ box.dead }} AS d
        WHERE d.id > ISNULL(@after_id, 0)
        ORDER BY d.id;
    ELSE
        INSERT INTO @page (id)
        SELECT TOP (@limit) d.id
        FROM {{ box.dead }} AS d WITH (FORCESEEK ({{ key.ix_dead_topic }} (topic_key, id)))
        WHERE d.topic_key = CONVERT(nvarchar(256), LEFT(@topic, 256) + N'.') AND d.id > ISNULL(@after_id, 0)
        ORDER BY d.id;

    SELECT
{% if kind == "inbox" %}
        m.id, m.message_id, m.source, m.topic, m.payload, m.hash, m.group_id, m.priority, m.collapse_key, m.headers,
        m.status, m.attempt, m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error, m.died_at
{% else %}
        m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.dedup_key, m.collapse_key,
        m.headers, m.status, m.attempt, m.created_at, m.due_at, m.expires_at, m.last_error, m.died_at
{% endif %}
    FROM @page AS p
    INNER JOIN {{ box.messages }} AS m ON m.id = p.id
    ORDER BY m.id;
END;
