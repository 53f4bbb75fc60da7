{% import "macros/tables.sql" as tables with context %}
-- What was sent. Written once; only a retry's bookkeeping (attempt, due_at, last_error) ever changes it.
-- Where a message stands is told by the table its id is in: ready, scheduled, group_member, lease, done or dead.
CREATE TABLE {{ box.message }} (
    id bigint NOT NULL,
    message_id uniqueidentifier NOT NULL,
    created_at datetime2(6) NOT NULL,
    due_at datetime2(6),
    expires_at datetime2(6),
    attempt int NOT NULL,
    priority smallint NOT NULL,
    topic nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    payload nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    correlation_id nvarchar(255) COLLATE Latin1_General_100_BIN2,
    group_id nvarchar(255) COLLATE Latin1_General_100_BIN2,
    dedup_key nvarchar(255) COLLATE Latin1_General_100_BIN2,
    collapse_key nvarchar(255) COLLATE Latin1_General_100_BIN2,
    headers nvarchar(max) COLLATE Latin1_General_100_BIN2,
    last_error nvarchar(max) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{ key.pk_message }} PRIMARY KEY CLUSTERED (id),
    CONSTRAINT {{ key.uq_message_message_id }} UNIQUE NONCLUSTERED (message_id),
    CONSTRAINT {{ key.ck_message_attempt }} CHECK (attempt >= 0),
    CONSTRAINT {{ key.ck_message_headers }} CHECK (ISJSON(headers) = 1)
);
{{ tables.hot(box.message, key.pk_message) }}
