-- after: _step
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}

-- Makes a message of the outbox a step of a join, up to the number that it expects. One that is over already counts
-- at once. An open join takes any number until it is closed.
-- Until the transaction ends nobody can settle or claim the message: who settles it then finds the step. So within
-- one transaction attach messages that others may be working on in id order.
-- join_id: not null
-- message_id: not null
-- returns: attached; false if it was attached before
-- errors: PB001, PB002, PB003
-- locks: join, group, lease, message
-- role: producer
CREATE OR ALTER PROCEDURE {{ db.join_attach }}
    @join_id uniqueidentifier,
    @message_id uniqueidentifier
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6);
    DECLARE @id bigint;
    DECLARE @state nvarchar(10);
    DECLARE @status nvarchar(10);
    DECLARE @attached_steps int;
    DECLARE @expected_steps int;
    DECLARE @attached bit = 0;
    DECLARE @refusal nvarchar(2048);

    IF @join_id IS NULL
    {{ arguments.reject("join_id", "must not be null") }}
    IF @message_id IS NULL
    {{ arguments.reject("message_id", "must not be null") }}

    BEGIN TRANSACTION;
    {{ locks.wait(locks.join("@join_id"), "join") }}
    SELECT @status = j.status, @attached_steps = j.attached_steps, @expected_steps = j.expected_steps
    FROM {{ db.join }} AS j WITH (FORCESEEK)
    WHERE j.join_id = @join_id;
    IF @status IS NULL
    {{ arguments.refuse(51002, "join_id: no such join; it must be what join_start answered, in this schema") }}

    IF NOT EXISTS (
        SELECT 1 FROM {{ db.join_member }} AS jm WITH (FORCESEEK) WHERE jm.join_id = @join_id AND jm.message_id = @message_id
    )
    BEGIN
        SELECT @id = m.id FROM {{ db.outbox_message }} AS m WITH (FORCESEEK) WHERE m.message_id = @message_id;
        EXEC {{ db._outbox_hold }} @id = @id, @state = @state OUTPUT;
        IF @state IS NULL
        {{ arguments.refuse(51002, "message_id: no such message; it must be one of this outbox, enqueued before or in this transaction") | indent(4) }}
        SET @refusal = CONCAT(N'join_id: the join is ', @status, N'; start another one');
        IF @status <> N'Pending'
        {{ arguments.refuse(51003, "@refusal") | indent(4) }}
        IF @attached_steps >= @expected_steps
        {{ arguments.refuse(51003, "join_id: all expected steps are attached; start the join with more, or without a number") | indent(4) }}

        SET @now_at = {{ clock.now() }};
        INSERT INTO {{ db.join_member }} (join_id, message_id, id, counted, attached_at)
        VALUES (@join_id, @message_id, @id, NULLIF(@state, N'pending'), @now_at);
        UPDATE {{ db.join }} WITH (ROWLOCK)
        SET attached_steps = attached_steps + 1, last_updated_at = @now_at
        WHERE join_id = @join_id;
        IF @state <> N'pending'
            EXEC {{ db._join_step }} @join_id = @join_id, @state = @state;
        SET @attached = 1;
    END;
    COMMIT TRANSACTION;

    SELECT @attached AS attached;
END;
