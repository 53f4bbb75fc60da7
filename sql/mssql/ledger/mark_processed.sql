-- after: _check

-- Marks a key processed for good. With a lease only if it is still the key's own: run out is no matter, taken over is.
-- key: 1 to 512 characters
-- lease_id: the one from ledger_try_begin; null marks the key whoever holds it, and also one never seen
-- returns: affected; 0 if it was processed before, or the lease is not the key's
-- errors: PB001
-- locks: message
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.ledger_mark_processed }}
    @key nvarchar(max),
    @lease_id uniqueidentifier = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    -- What is decided is decided by what is there now, also for a caller under SNAPSHOT. Babelfish cannot change over.
    IF SERVERPROPERTY('Babelfish') IS NULL
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @affected int = 0;
    DECLARE @is_over bit = 0;
    DECLARE @tries int = 0;
    DECLARE @ledger_key nvarchar(513);

    EXEC {{ db._ledger_check }} @key = @key;
    SET @ledger_key = @key + N'.';

    BEGIN TRANSACTION;
    WHILE @is_over = 0
    BEGIN
        UPDATE {{ db.ledger }} WITH (ROWLOCK)
        SET state = N'Processed', lease_id = NULL, lease_until = NULL, last_seen_at = @now_at, processed_at = @now_at
        WHERE ledger_key = @ledger_key
            AND (
                (@lease_id IS NULL AND state <> N'Processed')
                OR (state = N'Acquired' AND lease_id = @lease_id)
            );
        SET @affected = @@ROWCOUNT;
        IF @affected > 0
            OR @lease_id IS NOT NULL
            OR EXISTS (SELECT 1 FROM {{ db.ledger }} AS l WHERE l.ledger_key = @ledger_key AND l.state = N'Processed')
            BREAK;

        -- A violated key costs the statement, not the transaction; behind it the earlier row is there to update.
        SET XACT_ABORT OFF;
        BEGIN TRY
            INSERT INTO {{ db.ledger }} (ledger_key, state, attempts, first_seen_at, last_seen_at, processed_at)
            SELECT @ledger_key, N'Processed', 0, @now_at, @now_at, @now_at
            WHERE NOT EXISTS (
                SELECT 1 FROM {{ db.ledger }} AS l WITH (ROWLOCK, READCOMMITTEDLOCK) WHERE l.ledger_key = @ledger_key
            );
            SET @affected = @@ROWCOUNT;
            SET @is_over = CASE WHEN @affected > 0 THEN 1 ELSE 0 END;
        END TRY
        BEGIN CATCH
            SET XACT_ABORT ON;
            SET @tries += 1;
            IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() <> 1 OR @tries > 20
                THROW;
        END CATCH;
        SET XACT_ABORT ON;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
