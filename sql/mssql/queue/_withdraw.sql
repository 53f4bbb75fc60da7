{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}

-- Takes messages out of where they wait: ready, scheduled or a group. A message waits in exactly one place, and
-- whoever takes its row there has it; what another transaction is just taking is passed over, nobody waits.
-- returns: bigint[]; here how many were taken
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._withdraw }}
    @ids nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @taken int = 0;
    DECLARE @group_key nvarchar(256);
    DECLARE @place TABLE (
        id bigint NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        due_at datetime2(6),
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @returned TABLE (id bigint NOT NULL PRIMARY KEY, lane int NOT NULL, ticket bigint NOT NULL);
    DECLARE @group TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        is_busy bit NOT NULL
    );

    INSERT INTO @place (id, lane, due_at, group_key)
    SELECT m.id, 0 - m.priority, m.due_at, m.group_id + N'.'
    FROM OPENJSON(@ids) AS j
    INNER JOIN {{ box.message }} AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON m.id = CONVERT(bigint, j.value)
    OPTION (KEEPFIXED PLAN);

    DELETE r
    FROM @place AS p
    INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.lane = p.lane AND r.ticket = p.id
    WHERE p.group_key IS NULL AND r.id IS NULL AND r.group_key IS NULL
    OPTION (KEEPFIXED PLAN);
    SET @taken += @@ROWCOUNT;

    -- Found through the index without keeping locks, then locked by key: in the same order as a claim does.
    INSERT INTO @returned (id, lane, ticket)
    SELECT r.id, r.lane, r.ticket
    FROM @place AS p
    INNER JOIN {{ box.ready }} AS r WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.id = p.id AND r.id IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    DELETE r
    FROM @returned AS t
    INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.lane = t.lane AND r.ticket = t.ticket
    WHERE r.id = t.id
    OPTION (KEEPFIXED PLAN);
    SET @taken += @@ROWCOUNT;

    DELETE s
    FROM @place AS p
    INNER JOIN {{ box.scheduled }} AS s WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON s.due_at = p.due_at AND s.no = p.id
    WHERE s.id = p.id
    OPTION (KEEPFIXED PLAN);
    SET @taken += @@ROWCOUNT;

    IF NOT EXISTS (SELECT 1 FROM @place AS p WHERE p.group_key IS NOT NULL)
        RETURN @taken;

    -- Members go only under their group's lock.
    INSERT INTO @group (group_key, is_busy)
    SELECT DISTINCT p.group_key, 0
    FROM @place AS p
    WHERE p.group_key IS NOT NULL;
    {{ groups.attempt_all() }}

    DELETE gm
    FROM @place AS p
    INNER JOIN @group AS g ON g.group_key = p.group_key
    INNER JOIN {{ box.group_member }} AS gm WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON gm.group_key = p.group_key AND gm.id = p.id
    WHERE g.is_busy = 0
    OPTION (KEEPFIXED PLAN);
    SET @taken += @@ROWCOUNT;
    RETURN @taken;
END;
