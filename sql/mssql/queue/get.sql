{% import "macros/arguments.sql" as arguments with context %}

-- One message by its id, with its status and bookkeeping.
{% if kind == "inbox" %}
-- returns: id, message_id, source, topic, payload, hash, group_id, priority, collapse_key, headers, status, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at
{% else %}
-- returns: id, message_id, topic, payload, correlation_id, group_id, priority, dedup_key, collapse_key, headers, status, attempt, created_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at
{% endif %}
-- errors: PB001, PB002
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.get }}
    @id bigint
AS
BEGIN
    {{ arguments.begin() }}

    IF @id IS NULL
    {{ arguments.reject("id", "must not be null") }}
    IF NOT EXISTS (SELECT 1 FROM {{ box.message }} AS m WHERE m.id = @id)
    {{ arguments.raise(51002, "id: no such message; it must be an id of this box, and may have been cleaned up") }}

    SELECT
{% if kind == "inbox" %}
        m.id, m.message_id, m.source, m.topic, m.payload, m.hash, m.group_id, m.priority, m.collapse_key, m.headers,
        m.status, m.attempt, m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error, m.owner_token,
        m.locked_until, m.processed_at, m.processed_by, m.died_at
{% else %}
        m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.dedup_key, m.collapse_key,
        m.headers, m.status, m.attempt, m.created_at, m.due_at, m.expires_at, m.last_error, m.owner_token,
        m.locked_until, m.processed_at, m.processed_by, m.died_at
{% endif %}
    FROM {{ box.messages }} AS m
    WHERE m.id = @id;
END;
