-- after: _check
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}

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
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6);
    DECLARE @no bigint;
    DECLARE @affected int = 0;
    DECLARE @ledger_key nvarchar(513);

    {{ arguments.check_by(db._ledger_check ~ " @key = @key") }}
    SET @ledger_key = @key + N'.';

    BEGIN TRANSACTION;
    IF @lease_id IS NULL AND NOT EXISTS (
        SELECT 1 FROM {{ db.ledger }} AS l WITH (FORCESEEK) WHERE l.ledger_key = @ledger_key AND l.state = N'Processed'
    )
    BEGIN
        -- It may have to be entered.
        {{ locks.wait(locks.ledger_key("@ledger_key"), "key") | indent(4) }}
    END;
    -- Looked up by the key, then locked by its number: in the same order as a cleanup does.
    SELECT @no = l.no
    FROM {{ db.ledger }} AS l WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE l.ledger_key = @ledger_key;
    SET @now_at = {{ clock.now() }};
    UPDATE {{ db.ledger }} WITH (ROWLOCK)
    SET state = N'Processed', lease_id = NULL, lease_until = NULL, last_seen_at = @now_at, processed_at = @now_at
    WHERE no = @no
        AND (
            (@lease_id IS NULL AND state <> N'Processed')
            OR (state = N'Acquired' AND lease_id = @lease_id)
        );
    SET @affected = @@ROWCOUNT;

    IF @affected = 0 AND @lease_id IS NULL AND @lock_got IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM {{ db.ledger }} AS l WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) WHERE l.ledger_key = @ledger_key
    )
    BEGIN
        INSERT INTO {{ db.ledger }} (ledger_key, state, attempts, first_seen_at, last_seen_at, processed_at)
        VALUES (@ledger_key, N'Processed', 0, @now_at, @now_at, @now_at);
        SET @affected = 1;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
