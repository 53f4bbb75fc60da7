-- after: _check_key
{% import "macros/arguments.sql" as arguments with context %}

-- One message by its key, with its status and bookkeeping; no row if there is none.
-- returns: id, message_id, source, topic, payload, hash, group_id, priority, collapse_key, headers, status, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at
-- errors: PB001
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.find }}
    @message_id nvarchar(max),
    @source nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    {{ arguments.check_by(box._check_key ~ " @message_id = @message_id, @source = @source") }}

    DECLARE @id bigint = (
        SELECT k.id
        FROM {{ box.message }} AS k WITH (FORCESEEK)
        WHERE k.source_key = CONVERT(nvarchar(256), @source + N'.')
            AND k.message_id_key = CONVERT(nvarchar(256), @message_id + N'.')
    );
    SELECT
        m.id, m.message_id, m.source, m.topic, m.payload, m.hash, m.group_id, m.priority, m.collapse_key, m.headers,
        m.status, m.attempt, m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error, m.owner_token,
        m.locked_until, m.processed_at, m.processed_by, m.died_at
    FROM {{ box.messages }} AS m
    WHERE m.id = @id;
END;
