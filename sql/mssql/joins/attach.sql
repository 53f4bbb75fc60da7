-- after: _hold, _step

-- Makes a message of the outbox a step of a join. One that is over already counts at once.
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
    SET NOCOUNT, XACT_ABORT ON;
    -- What is locked is read as it is now, also for a caller under SNAPSHOT. Babelfish cannot change over.
    IF SERVERPROPERTY('Babelfish') IS NULL
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @now_at datetime2(6);
    DECLARE @key bigint;
    DECLARE @resource nvarchar(255);
    DECLARE @got int;
    DECLARE @id bigint;
    DECLARE @state nvarchar(10);
    DECLARE @status nvarchar(10);
    DECLARE @attached_steps int;
    DECLARE @expected_steps int;
    DECLARE @attached bit = 0;
    DECLARE @refusal nvarchar(2048);

    IF @join_id IS NULL
        EXEC {{ db._reject }} @argument = N'join_id', @rule = N'must not be null';
    IF @message_id IS NULL
        EXEC {{ db._reject }} @argument = N'message_id', @rule = N'must not be null';

    BEGIN TRANSACTION;
    SET @key = CONVERT(bigint, CONVERT(binary(8), HASHBYTES(
        'SHA2_256', CONCAT({{ (schema ~ ".join:") | literal }}, @join_id)
    )));
    SET @resource = CONVERT(nvarchar(255), @key);
    IF SERVERPROPERTY('Babelfish') IS NULL
        EXEC @got = sys.sp_getapplock
            @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;
    ELSE
        EXEC sys.sp_executesql
            N'SELECT @got = COUNT(*) FROM (SELECT pg_catalog.pg_advisory_xact_lock(@key) AS taken) AS l;',
            N'@key bigint, @got int OUTPUT', @key = @key, @got = @got OUTPUT;
    IF @got < 0
        THROW 50001, N'join: chosen as the victim of a deadlock, try again', 1;
    SELECT @status = j.status, @attached_steps = j.attached_steps, @expected_steps = j.expected_steps
    FROM {{ db.join }} AS j
    WHERE j.join_id = @join_id;
    IF @status IS NULL
        THROW 51002, N'join_id: no such join', 1;

    IF NOT EXISTS (
        SELECT 1 FROM {{ db.join_member }} AS jm WHERE jm.join_id = @join_id AND jm.message_id = @message_id
    )
    BEGIN
        SELECT @id = m.id FROM {{ db.outbox_message }} AS m WHERE m.message_id = @message_id;
        EXEC {{ db._join_hold }} @id = @id, @state = @state OUTPUT;
        IF @state IS NULL
            THROW 51002, N'message_id: no such message', 1;
        IF @status <> N'Pending'
        BEGIN
            SET @refusal = CONCAT(N'join_id: the join is ', @status);
            THROW 51003, @refusal, 1;
        END;
        IF @attached_steps >= @expected_steps
            THROW 51003, N'join_id: all expected steps are attached', 1;

        SET @now_at = {{ db._now }}();
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
