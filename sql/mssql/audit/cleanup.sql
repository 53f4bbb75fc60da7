{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Forgets up to batch_size changes that were noted longer ago than the retention, oldest first.
-- One short transaction that skips locked rows; call it until it answers 0.
-- retention_seconds: from 0 to 1000000000
-- batch_size: from 1 to 10000
-- returns: affected
-- errors: PB001
-- locks: message
-- role: operator
CREATE OR ALTER PROCEDURE {{ db.audit_cleanup }}
    @retention_seconds decimal(19, 3),
    @batch_size int = 1000
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @before_at datetime2(6);
    DECLARE @affected int;
    DECLARE @old TABLE (id bigint NOT NULL PRIMARY KEY);

    {{ arguments.check_by(db._check_cleanup ~ " @retention_seconds = @retention_seconds, @batch_size = @batch_size") }}
    SET @before_at = DATEADD(
        MILLISECOND, -CONVERT(int, (@retention_seconds - FLOOR(@retention_seconds)) * 1000),
        DATEADD(SECOND, -CONVERT(int, FLOOR(@retention_seconds)), @now_at)
    );

    BEGIN TRANSACTION;
    -- Found through the index without keeping locks, then locked by id.
    INSERT INTO @old (id)
    SELECT TOP (@batch_size) a.id
    FROM {{ db.audit }} AS a WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE a.changed_at <= @before_at
    ORDER BY a.changed_at;

    DELETE a
    FROM @old AS o
    INNER JOIN {{ db.audit }} AS a WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON a.id = o.id
    WHERE a.changed_at <= @before_at;
    SET @affected = @@ROWCOUNT;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
