-- after: _check

-- Asks to work on a key. Of any number of concurrent callers exactly one acquires it: a new key, one that was
-- released, or one whose lease has run out. Everybody else hears Processed or Busy, and nothing is written.
-- A caller whose transaction is open holds up the others that ask for the same new or free key, until it ends.
-- key: 1 to 512 characters
-- owner: up to 255 characters
-- lease_seconds: from 1 to 86400; null never runs out (mark before handling)
-- handler: up to 255 characters
-- returns: status, lease_id, expires_at, attempts; status is Acquired, Processed or Busy (then expires_at is the holder's)
-- errors: PB001
-- locks: message
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.ledger_try_begin }}
    @key nvarchar(max),
    @owner nvarchar(max) = NULL,
    @lease_seconds int = NULL,
    @handler nvarchar(max) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    -- What is decided is decided by what is there now, also for a caller under SNAPSHOT. Babelfish cannot change over.
    IF SERVERPROPERTY('Babelfish') IS NULL
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @now_at datetime2(6);
    DECLARE @later_at datetime2(6);
    DECLARE @until_at datetime2(6);
    DECLARE @state nvarchar(10);
    DECLARE @status nvarchar(10);
    DECLARE @attempts int;
    DECLARE @tries int = 0;
    DECLARE @new_lease uniqueidentifier = NEWID();
    DECLARE @ledger_key nvarchar(513);

    EXEC {{ db._ledger_check }} @key = @key;
    IF LEN((@owner + N'.') COLLATE Latin1_General_100_BIN2) > 256
        EXEC {{ db._reject }} @argument = N'owner', @rule = N'must not be longer than 255 characters';
    IF @lease_seconds NOT BETWEEN 1 AND 86400
        EXEC {{ db._reject }} @argument = N'lease_seconds', @rule = N'must be from 1 to 86400, or null';
    IF LEN((@handler + N'.') COLLATE Latin1_General_100_BIN2) > 256
        EXEC {{ db._reject }} @argument = N'handler', @rule = N'must not be longer than 255 characters';
    SET @ledger_key = @key + N'.';

    BEGIN TRANSACTION;
    WHILE @status IS NULL
    BEGIN
        SET @state = NULL;
        SET @now_at = {{ db._now }}();
        SELECT @state = l.state, @until_at = l.lease_until, @attempts = l.attempts
        FROM {{ db.ledger }} AS l
        WHERE l.ledger_key = @ledger_key;

        IF @state = N'Unknown' OR (@state = N'Acquired' AND @until_at <= @now_at)
        BEGIN
            -- A write that changes nothing locks the row in every engine; then what it says is decided by.
            UPDATE {{ db.ledger }} WITH (ROWLOCK)
            SET owner = owner
            WHERE ledger_key = @ledger_key;
            SET @now_at = {{ db._now }}();
            SET @until_at = DATEADD(SECOND, @lease_seconds, @now_at);
            UPDATE {{ db.ledger }} WITH (ROWLOCK)
            SET
                state = N'Acquired',
                lease_id = @new_lease,
                owner = @owner,
                lease_until = @until_at,
                attempts = attempts + 1,
                handler = @handler,
                last_seen_at = @now_at
            WHERE ledger_key = @ledger_key
                AND (state = N'Unknown' OR (state = N'Acquired' AND lease_until <= @now_at));
            IF @@ROWCOUNT > 0
            BEGIN
                SET @status = N'Acquired';
                SET @attempts = (SELECT l.attempts FROM {{ db.ledger }} AS l WHERE l.ledger_key = @ledger_key);
            END;
        END
        ELSE IF @state = N'Processed'
            SET @status = N'Processed';
        ELSE IF @state IS NOT NULL
            SET @status = N'Busy';
        ELSE
        BEGIN
            SET @attempts = 1;
            SET @until_at = DATEADD(SECOND, @lease_seconds, @now_at);
            -- A violated key costs the statement, not the transaction; behind it the earlier row is there to read.
            SET XACT_ABORT OFF;
            BEGIN TRY
                INSERT INTO {{ db.ledger }} (
                    ledger_key, state, lease_id, owner, lease_until, attempts, handler, first_seen_at, last_seen_at
                )
                SELECT
                    @ledger_key, N'Acquired', @new_lease, @owner, @until_at, @attempts, @handler, @now_at, @now_at
                WHERE NOT EXISTS (
                    SELECT 1
                    FROM {{ db.ledger }} AS l WITH (ROWLOCK, READCOMMITTEDLOCK)
                    WHERE l.ledger_key = @ledger_key
                );
                IF @@ROWCOUNT > 0
                    SET @status = N'Acquired';
            END TRY
            BEGIN CATCH
                SET XACT_ABORT ON;
                SET @tries += 1;
                IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() <> 1 OR @tries > 20
                    THROW;
            END CATCH;
            SET XACT_ABORT ON;

            -- It may have waited for another insert that was rolled back; then the lease begins only now.
            SET @later_at = {{ db._now }}();
            IF @status IS NOT NULL AND @later_at > DATEADD(MILLISECOND, 500, @now_at)
            BEGIN
                SET @until_at = DATEADD(SECOND, @lease_seconds, @later_at);
                UPDATE {{ db.ledger }} WITH (ROWLOCK)
                SET lease_until = @until_at, first_seen_at = @later_at, last_seen_at = @later_at
                WHERE ledger_key = @ledger_key AND lease_id = @new_lease;
            END;
        END;
    END;
    COMMIT TRANSACTION;

    SELECT
        @status AS status,
        CASE WHEN @status = N'Acquired' THEN @new_lease END AS lease_id,
        @until_at AS expires_at,
        @attempts AS attempts;
END;
