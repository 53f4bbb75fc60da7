{% import "macros/arguments.sql" as arguments with context %}

-- One message by its message_id, with its status and bookkeeping; no row if there is none.
-- returns: id, message_id, topic, payload, correlation_id, group_id, priority, dedup_key, collapse_key, headers, status, attempt, created_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at
-- errors: PB001
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.find }}
    @message_id uniqueidentifier
AS
BEGIN
    {{ arguments.begin() }}

    IF @message_id IS NULL
    {{ arguments.reject("message_id", "must not be null") }}

    SELECT
        m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.dedup_key, m.collapse_key,
        m.headers, m.status, m.attempt, m.created_at, m.due_at, m.expires_at, m.last_error, m.owner_token,
        m.locked_until, m.processed_at, m.processed_by, m.died_at
    FROM {{ box.messages }} AS m
    WHERE m.message_id = @message_id;
END;
