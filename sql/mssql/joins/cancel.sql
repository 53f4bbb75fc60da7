-- after: _nudge

-- Ends a pending join without its follow-up message. Its steps go on, and go on being counted.
-- Its join.wait message becomes due, so that a handler sees that there is nothing to wait for.
-- join_id: not null
-- returns: cancelled; false if it was over before
-- errors: PB001, PB002
-- locks: join
-- role: producer
CREATE OR ALTER PROCEDURE {{ db.join_cancel }}
    @join_id uniqueidentifier
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
    DECLARE @cancelled bit = 0;

    IF @join_id IS NULL
        EXEC {{ db._reject }} @argument = N'join_id', @rule = N'must not be null';

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
    IF NOT EXISTS (SELECT 1 FROM {{ db.join }} AS j WHERE j.join_id = @join_id)
        THROW 51002, N'join_id: no such join', 1;

    SET @now_at = {{ db._now }}();
    UPDATE {{ db.join }} WITH (ROWLOCK)
    SET status = N'Cancelled', finished_at = @now_at, last_updated_at = @now_at
    WHERE join_id = @join_id AND status = N'Pending';
    IF @@ROWCOUNT > 0
    BEGIN
        SET @cancelled = 1;
        EXEC {{ db._join_nudge }} @join_id = @join_id;
    END;
    COMMIT TRANSACTION;

    SELECT @cancelled AS cancelled;
END;
