{% import "macros/arguments.sql" as arguments with context %}

-- One join with its counters. status is Pending, Completed, Failed or Cancelled; expected_steps is null while the
-- join is open.
-- join_id: not null
-- returns: join_id, tenant_id, expected_steps, completed_steps, failed_steps, status, metadata, created_at, last_updated_at
-- errors: PB001, PB002
-- locks: none
-- role: producer, viewer
CREATE OR ALTER PROCEDURE {{ db.join_get }}
    @join_id uniqueidentifier
AS
BEGIN
    {{ arguments.begin() }}

    IF @join_id IS NULL
    {{ arguments.reject("join_id", "must not be null") }}
    IF NOT EXISTS (SELECT 1 FROM {{ db.join }} AS j WITH (FORCESEEK) WHERE j.join_id = @join_id)
    {{ arguments.raise(51002, "join_id: no such join; it must be what join_start answered, in this schema") }}

    SELECT
        v.join_id, v.tenant_id, v.expected_steps, v.completed_steps, v.failed_steps, v.status, v.metadata, v.created_at,
        v.last_updated_at
    FROM {{ db.outbox_joins }} AS v
    WHERE v.join_id = @join_id;
END;
