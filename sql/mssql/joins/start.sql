{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Begins a join: a fan-in that waits for a number of messages of the outbox, its steps.
-- tenant_id: 1 to 255 characters
-- expected_steps: at least 1; null for an open join, which join_wait closes at the number attached by then
-- metadata: the caller's own, kept as it is; may be null
-- returns: join_id
-- errors: PB001
-- locks: none
-- role: producer
CREATE OR ALTER PROCEDURE {{ db.join_start }}
    @tenant_id nvarchar(max),
    @expected_steps int = NULL,
    @metadata nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @join_id uniqueidentifier = {{ db._uuid }}(NEWID(), @now_at, 0);

    -- LEN passes over trailing blanks, so an end mark is put behind the text.
    IF @tenant_id IS NULL
        OR LEN(@tenant_id + N'.') = 1
        OR LEN((@tenant_id + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("tenant_id", "must have from 1 to 255 characters") }}
    IF @expected_steps < 1
    {{ arguments.reject("expected_steps", "must be at least 1, or null") }}

    INSERT INTO {{ db.join }} (
        join_id, tenant_key, expected_steps, attached_steps, completed_steps, failed_steps, status, metadata, created_at,
        last_updated_at, fail_if_any_step_failed
    )
    VALUES (
        @join_id, @tenant_id + N'.', @expected_steps, 0, 0, 0, N'Pending', @metadata, @now_at, @now_at, 1
    );

    SELECT @join_id AS join_id;
END;
