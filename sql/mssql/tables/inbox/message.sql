{% import "macros/tables.sql" as tables with context %}
-- What was received, once per (source, message_id), which are kept in key form only, for their unique constraint.
-- A message that was only seen, never enqueued, has no topic.
-- Where a message stands is told by the table its id is in: seen, ready, scheduled, group_member, lease, done or dead.
CREATE TABLE {{ box.message }} (
    id bigint NOT NULL,
    first_seen_at datetime2(6) NOT NULL,
    last_seen_at datetime2(6) NOT NULL,
    due_at datetime2(6),
    expires_at datetime2(6),
    attempt int NOT NULL,
    priority smallint NOT NULL,
    source_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_id_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic nvarchar(255) COLLATE Latin1_General_100_BIN2,
    payload nvarchar(max) COLLATE Latin1_General_100_BIN2,
    hash varbinary(max),
    group_id nvarchar(255) COLLATE Latin1_General_100_BIN2,
    collapse_key nvarchar(255) COLLATE Latin1_General_100_BIN2,
    headers nvarchar(max) COLLATE Latin1_General_100_BIN2,
    last_error nvarchar(max) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{ key.pk_message }} PRIMARY KEY CLUSTERED (id),
    CONSTRAINT {{ key.uq_message_key }} UNIQUE NONCLUSTERED (source_key, message_id_key),
    CONSTRAINT {{ key.ck_message_attempt }} CHECK (attempt >= 0),
    CONSTRAINT {{ key.ck_message_enqueued }} CHECK (
        (topic IS NULL AND payload IS NULL) OR (topic IS NOT NULL AND payload IS NOT NULL)
    ),
    CONSTRAINT {{ key.ck_message_headers }} CHECK (ISJSON(headers) = 1)
);
{{ tables.hot(box.message, key.pk_message) }}
