-- after: _nudge
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}

-- Enqueues the message that brings a join to its end: topic join.wait, payload {"join_id": "..."}; it is parked and
-- becomes due with the last step. Its handler calls join_resolve, which enqueues what is given here.
-- An open join is closed: from here on it waits for the steps that it has by now. With none it is complete at once.
-- A second call on a pending join replaces what was given, and answers the same message while that one is not over.
-- Parked for an hour at most: that is a safety net for handlers that ask too early, and nobody polls.
-- join_id: not null
-- fail_if_any_step_failed: not null; false makes the join Completed whatever became of its steps
-- on_complete_topic: 1 to 255 characters; null enqueues nothing
-- on_complete_payload: null is an empty one
-- on_fail_topic: 1 to 255 characters; null enqueues nothing
-- on_fail_payload: null is an empty one
-- returns: id, message_id
-- errors: PB001, PB002, PB003
-- locks: join, group, lease, message
-- role: producer
CREATE OR ALTER PROCEDURE {{ db.join_wait }}
    @join_id uniqueidentifier,
    @fail_if_any_step_failed bit = 1,
    @on_complete_topic nvarchar(max) = NULL,
    @on_complete_payload nvarchar(max) = NULL,
    @on_fail_topic nvarchar(max) = NULL,
    @on_fail_payload nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6);
    DECLARE @due_at datetime2(6);
    {{ locks.variables() }}
    DECLARE @status nvarchar(10);
    DECLARE @completed_steps int;
    DECLARE @failed_steps int;
    DECLARE @expected_steps int;
    DECLARE @id bigint;
    DECLARE @message_id uniqueidentifier;
    DECLARE @state nvarchar(10);
    DECLARE @payload nvarchar(100);
    DECLARE @outcome nvarchar(20);
    DECLARE @refusal nvarchar(2048);

    IF @join_id IS NULL
    {{ arguments.reject("join_id", "must not be null") }}
    IF @fail_if_any_step_failed IS NULL
    {{ arguments.reject("fail_if_any_step_failed", "must not be null") }}
    IF LEN(@on_complete_topic + N'.') = 1 OR LEN((@on_complete_topic + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("on_complete_topic", "must have from 1 to 255 characters, or be null") }}
    IF LEN(@on_fail_topic + N'.') = 1 OR LEN((@on_fail_topic + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("on_fail_topic", "must have from 1 to 255 characters, or be null") }}

    BEGIN TRANSACTION;
    {{ locks.wait(locks.join("@join_id"), "join") }}
    -- Whoever attaches has the join locked: what is attached by now is all that an open one waits for.
    SELECT
        @status = j.status, @completed_steps = j.completed_steps, @failed_steps = j.failed_steps,
        @expected_steps = ISNULL(j.expected_steps, j.attached_steps), @id = j.wait_id, @message_id = j.wait_message_id
    FROM {{ db.join }} AS j WITH (FORCESEEK)
    WHERE j.join_id = @join_id;
    IF @status IS NULL
    {{ arguments.refuse(51002, "join_id: no such join; it must be what join_start answered, in this schema") }}
    SET @refusal = CONCAT(N'join_id: the join is ', @status, N'; start another one');
    IF @status <> N'Pending'
    {{ arguments.refuse(51003, "@refusal") }}

    EXEC {{ db._outbox_hold }} @id = @id, @state = @state OUTPUT;
    SET @now_at = {{ clock.now() }};
    IF @state IS NULL OR @state <> N'pending'
    BEGIN
        SELECT
            @completed_steps = @completed_steps + ISNULL(SUM(t.completed), 0),
            @failed_steps = @failed_steps + ISNULL(SUM(t.failed), 0)
        FROM {{ db.join_tally }} AS t WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE t.join_id = @join_id;
        IF @completed_steps + @failed_steps < @expected_steps
            SET @due_at = DATEADD(HOUR, 1, @now_at);
        SET @payload = CONCAT(N'{"join_id": "', LOWER(CONVERT(nvarchar(36), @join_id)), N'"}');
        SET @message_id = NULL;
        SET @id = NEXT VALUE FOR {{ db._outbox_ids }};
        EXEC {{ db._outbox_enqueue }}
            @id = @id OUTPUT, @message_id = @message_id OUTPUT, @outcome = @outcome OUTPUT, @now_at = @now_at,
            @topic = N'join.wait', @payload = @payload, @correlation_id = NULL, @due_at = @due_at, @group_id = NULL,
            @priority = 0, @dedup_key = NULL, @collapse_key = NULL, @expires_at = NULL, @headers = NULL,
            @created_at = @now_at;
    END;

    UPDATE {{ db.join }} WITH (ROWLOCK)
    SET
        expected_steps = @expected_steps,
        wait_id = @id,
        wait_message_id = @message_id,
        fail_if_any_step_failed = @fail_if_any_step_failed,
        on_complete_topic = @on_complete_topic,
        on_complete_payload = @on_complete_payload,
        on_fail_topic = @on_fail_topic,
        on_fail_payload = @on_fail_payload,
        last_updated_at = @now_at
    WHERE join_id = @join_id AND status = N'Pending';
    -- Steps that are being settled just now are not seen here, nor is this message by who settles them: whoever looks
    -- at the join after both are committed sees both.
    EXEC {{ db._join_nudge }} @join_id = @join_id;
    COMMIT TRANSACTION;

    SELECT @id AS id, @message_id AS message_id;
END;
