-- after: _compact
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}

-- Ends a join whose steps are all over, and enqueues what join_wait was given for that: what a join.wait handler calls.
-- Exactly one of any number of callers ends it and enqueues; the others, later ones too, get the same answer.
-- Before the last step, and as long as the join is open, it answers Pending and writes nothing; of a cancelled join it answers Cancelled.
-- join_id: not null
-- returns: status, completed_steps, failed_steps, expected_steps, enqueued_message_id; the last null if none was enqueued
-- errors: PB001, PB002
-- locks: join, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.join_resolve }}
    @join_id uniqueidentifier
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6);
    {{ locks.variables() }}
    DECLARE @status nvarchar(10);
    DECLARE @completed_steps int;
    DECLARE @failed_steps int;
    DECLARE @expected_steps int;
    DECLARE @enqueued_message_id uniqueidentifier;
    DECLARE @is_strict bit;
    DECLARE @topic nvarchar(255);
    DECLARE @payload nvarchar(max);
    DECLARE @id bigint;
    DECLARE @outcome nvarchar(20);

    IF @join_id IS NULL
    {{ arguments.reject("join_id", "must not be null") }}

    BEGIN TRANSACTION;
    {{ locks.wait(locks.join("@join_id"), "join") }}
    SELECT
        @status = j.status, @completed_steps = j.completed_steps, @failed_steps = j.failed_steps,
        @expected_steps = j.expected_steps, @enqueued_message_id = j.enqueued_message_id,
        @is_strict = j.fail_if_any_step_failed
    FROM {{ db.join }} AS j WITH (FORCESEEK)
    WHERE j.join_id = @join_id;
    IF @status IS NULL
    {{ arguments.refuse(51002, "join_id: no such join; it must be what join_start answered, in this schema") }}
    -- Steps that are just being settled bring a probe of their own.
    SELECT
        @completed_steps = @completed_steps + ISNULL(SUM(t.completed), 0),
        @failed_steps = @failed_steps + ISNULL(SUM(t.failed), 0)
    FROM {{ db.join_tally }} AS t WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE t.join_id = @join_id;

    IF @status = N'Pending' AND @completed_steps + @failed_steps >= @expected_steps
    BEGIN
        SET @status = CASE WHEN @is_strict = 1 AND @failed_steps > 0 THEN N'Failed' ELSE N'Completed' END;
        SET @now_at = {{ clock.now() }};
        IF @status = N'Failed'
            SELECT @topic = j.on_fail_topic, @payload = j.on_fail_payload
            FROM {{ db.join }} AS j WITH (FORCESEEK)
            WHERE j.join_id = @join_id;
        ELSE
            SELECT @topic = j.on_complete_topic, @payload = j.on_complete_payload
            FROM {{ db.join }} AS j WITH (FORCESEEK)
            WHERE j.join_id = @join_id;
        IF @topic IS NOT NULL
        BEGIN
            SET @payload = ISNULL(@payload, N'');
            SET @id = NEXT VALUE FOR {{ db._outbox_ids }};
            EXEC {{ db._outbox_enqueue }}
                @id = @id OUTPUT, @message_id = @enqueued_message_id OUTPUT, @outcome = @outcome OUTPUT, @now_at = @now_at,
                @topic = @topic, @payload = @payload, @correlation_id = NULL, @due_at = NULL, @group_id = NULL,
                @priority = 0, @dedup_key = NULL, @collapse_key = NULL, @expires_at = NULL, @headers = NULL,
                @created_at = @now_at;
        END;
        EXEC {{ db._join_compact }} @join_id = @join_id;
        UPDATE {{ db.join }} WITH (ROWLOCK)
        SET
            status = @status,
            enqueued_message_id = @enqueued_message_id,
            finished_at = @now_at,
            last_updated_at = @now_at
        WHERE join_id = @join_id AND status = N'Pending';
    END;
    COMMIT TRANSACTION;

    SELECT
        @status AS status, @completed_steps AS completed_steps, @failed_steps AS failed_steps,
        @expected_steps AS expected_steps, @enqueued_message_id AS enqueued_message_id;
END;
