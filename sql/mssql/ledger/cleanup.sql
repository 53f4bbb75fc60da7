{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Forgets up to batch_size keys, oldest first: processed longer ago than the retention, or released or with a lease
-- that has run out, and not seen since. Never a key that somebody holds, nor one acquired without expiry.
-- One short transaction that skips locked rows; call it until it answers 0.
-- retention_seconds: from 0 to 1000000000
-- batch_size: from 1 to 10000
-- returns: affected
-- errors: PB001
-- locks: message
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.ledger_cleanup }}
    @retention_seconds decimal(19, 3),
    @batch_size int = 1000
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @before_at datetime2(6);
    DECLARE @affected int;
    DECLARE @old TABLE (no bigint NOT NULL PRIMARY KEY, since_at datetime2(6) NOT NULL);

    {{ arguments.check_by(db._check_cleanup ~ " @retention_seconds = @retention_seconds, @batch_size = @batch_size") }}
    SET @before_at = DATEADD(
        MILLISECOND, -CONVERT(int, (@retention_seconds - FLOOR(@retention_seconds)) * 1000),
        DATEADD(SECOND, -CONVERT(int, FLOOR(@retention_seconds)), @now_at)
    );

    BEGIN TRANSACTION;
    -- Found through the indexes without keeping locks, then locked by number. A key is in at most one of the three.
    INSERT INTO @old (no, since_at)
    SELECT TOP (@batch_size) l.no, l.processed_at
    FROM {{ db.ledger }} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE l.processed_at IS NOT NULL AND l.processed_at <= @before_at
    ORDER BY l.processed_at;

    INSERT INTO @old (no, since_at)
    SELECT TOP (@batch_size) l.no, l.last_seen_at
    FROM {{ db.ledger }} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE l.lease_id IS NULL
        AND l.processed_at IS NULL
        AND l.last_seen_at <= @before_at
        AND NOT EXISTS (SELECT 1 FROM @old AS o WHERE o.no = l.no)
    ORDER BY l.last_seen_at
    OPTION (KEEPFIXED PLAN);

    INSERT INTO @old (no, since_at)
    SELECT TOP (@batch_size) l.no, l.last_seen_at
    FROM {{ db.ledger }} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE l.lease_until IS NOT NULL
        AND l.lease_until <= @now_at
        AND l.last_seen_at <= @before_at
        AND NOT EXISTS (SELECT 1 FROM @old AS o WHERE o.no = l.no)
    ORDER BY l.lease_until
    OPTION (KEEPFIXED PLAN);

    DELETE l
    FROM (SELECT TOP (@batch_size) c.no FROM @old AS c ORDER BY c.since_at, c.no) AS o
    INNER JOIN {{ db.ledger }} AS l WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON l.no = o.no
    WHERE l.processed_at <= @before_at
        OR (l.processed_at IS NULL AND l.last_seen_at <= @before_at AND (l.lease_id IS NULL OR l.lease_until <= @now_at))
    OPTION (KEEPFIXED PLAN);
    SET @affected = @@ROWCOUNT;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
