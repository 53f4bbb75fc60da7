{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Forgets up to batch_size workers that were not seen for longer than the retention, longest ago first.
-- One short transaction that skips locked rows; call it until it answers 0.
-- retention_seconds: from 0 to 1000000000
-- batch_size: from 1 to 10000
-- returns: affected
-- errors: PB001
-- locks: message
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.worker_cleanup }}
    @retention_seconds decimal(19, 3),
    @batch_size int = 1000
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @before_at datetime2(6);
    DECLARE @affected int;
    DECLARE @old TABLE (owner_token uniqueidentifier NOT NULL PRIMARY KEY);

    {{ arguments.check_by(db._check_cleanup ~ " @retention_seconds = @retention_seconds, @batch_size = @batch_size") }}
    SET @before_at = DATEADD(
        MILLISECOND, -CONVERT(int, (@retention_seconds - FLOOR(@retention_seconds)) * 1000),
        DATEADD(SECOND, -CONVERT(int, FLOOR(@retention_seconds)), @now_at)
    );

    BEGIN TRANSACTION;
    -- Found through the index without keeping locks, then locked by key.
    INSERT INTO @old (owner_token)
    SELECT TOP (@batch_size) a.owner_token
    FROM {{ db.worker }} AS a WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE a.seen_at <= @before_at
    ORDER BY a.seen_at;

    DELETE a
    FROM @old AS o
    INNER JOIN {{ db.worker }} AS a WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON a.owner_token = o.owner_token
    WHERE a.seen_at <= @before_at;
    SET @affected = @@ROWCOUNT;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
