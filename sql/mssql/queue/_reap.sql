-- after: _bury, _put_back

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}

-- Takes back up to batch_size leases that have run out, skipping what anybody else has locked. Each counts an
-- attempt; a message whose attempts thereby reach max_attempts dies, so that one that kills its worker every
-- time does not come back for ever.
-- returns: integer
-- errors: none
-- locks: group, lease, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._reap }}
    @batch_size int
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @limit_attempts int = 0;
    DECLARE @affected int;
    DECLARE @group_key nvarchar(256);
    DECLARE @ids nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @error nvarchar(max);
    DECLARE @group TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        is_busy bit NOT NULL
    );
    DECLARE @candidate TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        is_dying bit
    );

    -- Found through the index without keeping locks, then locked by id: in the same order as a settlement does.
    INSERT INTO @candidate (id, group_key)
    SELECT TOP (@batch_size) l.id, l.group_key
    FROM {{ box.lease }} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK ({{ key.ix_lease_expiry }} (locked_until)))
    WHERE l.locked_until < @now_at
    ORDER BY l.locked_until
    OPTION (KEEPFIXED PLAN);
    IF @@ROWCOUNT = 0
        RETURN 0;

    INSERT INTO @group (group_key, is_busy)
    SELECT DISTINCT c.group_key, 0
    FROM @candidate AS c
    WHERE c.group_key IS NOT NULL;
    {{ groups.attempt_all() }}
    DELETE FROM @candidate
    WHERE group_key IN (SELECT g.group_key FROM @group AS g WHERE g.is_busy = 1);

    DELETE l
    OUTPUT deleted.id, deleted.group_key INTO @gone (id, group_key)
    FROM @candidate AS c
    INNER JOIN {{ box.message }} AS m WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = c.id
    INNER JOIN {{ box.lease }} AS l WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON l.id = c.id
    WHERE l.locked_until < @now_at
    OPTION (KEEPFIXED PLAN);
    SET @affected = @@ROWCOUNT;
    IF @affected = 0
        RETURN 0;

    SELECT @limit_attempts = CONVERT(int, s.value)
    FROM {{ box.settings }} AS s
    WHERE s.name = N'max_attempts';

    UPDATE m
    SET attempt = m.attempt + 1
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id
    OPTION (KEEPFIXED PLAN);

    UPDATE g
    SET is_dying = CASE WHEN @limit_attempts > 0 AND m.attempt >= @limit_attempts THEN 1 ELSE 0 END
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
    OPTION (KEEPFIXED PLAN);

    SET @ids = {{ settling.array(where="g.is_dying = 1") }};
    IF @ids IS NOT NULL
    BEGIN
        SET @error = CONCAT(N'the lease expired and the attempts reached max_attempts (', @limit_attempts, N')');
        EXEC {{ box._bury }} @ids = @ids, @error = @error, @expired = 0;
    END;

    SET @ids = {{ settling.array(where="g.is_dying = 0") }};
    IF @ids IS NOT NULL
        EXEC {{ box._put_back }} @ids = @ids;

    -- Putting members back gave their groups a ticket already.
    SET @groups = (
        SELECT g.group_key
        FROM @gone AS g
        WHERE g.group_key IS NOT NULL
        GROUP BY g.group_key
        HAVING MIN(CONVERT(int, g.is_dying)) = 1
        FOR JSON PATH
    );
    IF @groups IS NOT NULL
        EXEC {{ box._regroup }} @groups = @groups;
    RETURN @affected;
END;
