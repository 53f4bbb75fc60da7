-- after: _place, _regroup

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}
{% import "macros/settling.sql" as settling with context %}

-- Gives waiting messages a new due time, whether they had to wait for one or not. One that thereby becomes claimable
-- queues behind those that are so already; one that is claimable and stays so keeps its place, and so does a member
-- within its group, which waits for the time of its head.
-- What is leased or over is passed over, and so is what another transaction is just claiming or moving: nobody waits.
-- ids: not null
-- due_at: null or past is now
-- returns: affected
-- errors: PB001
-- locks: group, message
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.reschedule }}
    @ids nvarchar(max),
    @due_at datetimeoffset(6) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6);
    DECLARE @due datetime2(6) = CONVERT(datetime2(6), SWITCHOFFSET(@due_at, '+00:00'));
    DECLARE @is_later bit = 0;
    DECLARE @affected int = 0;
    DECLARE @group_key nvarchar(256);
    DECLARE @moved nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @place TABLE (
        id bigint NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        due_at datetime2(6),
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @ready TABLE (
        lane int NOT NULL,
        ticket bigint NOT NULL,
        id bigint NOT NULL,
        PRIMARY KEY (lane, ticket)
    );
    DECLARE @group TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        is_busy bit NOT NULL
    );
    DECLARE @kept TABLE (
        lane int NOT NULL,
        ticket bigint NOT NULL,
        id bigint,
        expires_at datetime2(6),
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        PRIMARY KEY (lane, ticket)
    );
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @later TABLE (id bigint NOT NULL PRIMARY KEY);

    {{ settling.check_ids() }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    INSERT INTO @place (id, lane, due_at, group_key)
    SELECT m.id, 0 - m.priority, m.due_at, m.group_id + N'.'
    FROM @wanted AS w
    INNER JOIN {{ box.message }} AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = w.id
    OPTION (KEEPFIXED PLAN);

    INSERT INTO @group (group_key, is_busy)
    SELECT DISTINCT p.group_key, 0
    FROM @place AS p
    WHERE p.group_key IS NOT NULL;
    {{ groups.attempt_all() }}
    SET @now_at = {{ clock.now() }};
    IF @due > @now_at
        SET @is_later = 1;

    -- Members are held by their group's lock. The rows of the others are found without keeping locks, then locked, or
    -- taken, by key: in the same order as a claim does.
    INSERT INTO @gone (id, group_key)
    SELECT gm.id, gm.group_key
    FROM @place AS p
    INNER JOIN @group AS g ON g.group_key = p.group_key
    INNER JOIN {{ box.group_member }} AS gm WITH (FORCESEEK) ON gm.group_key = p.group_key AND gm.id = p.id
    WHERE g.is_busy = 0
    OPTION (KEEPFIXED PLAN);

    INSERT INTO @ready (lane, ticket, id)
    SELECT r.lane, r.ticket, p.id
    FROM @place AS p
    INNER JOIN {{ box.ready }} AS r WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.lane = p.lane AND r.ticket = p.id
    WHERE p.group_key IS NULL AND r.id IS NULL AND r.group_key IS NULL
    OPTION (KEEPFIXED PLAN);

    INSERT INTO @ready (lane, ticket, id)
    SELECT r.lane, r.ticket, p.id
    FROM @place AS p
    INNER JOIN {{ box.ready }} AS r WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.id = p.id AND r.id IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    DELETE r
    OUTPUT deleted.lane, deleted.ticket, deleted.id, deleted.expires_at, deleted.topic_key
    INTO @kept (lane, ticket, id, expires_at, topic_key)
    FROM @ready AS k
    INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON r.lane = k.lane AND r.ticket = k.ticket
    OPTION (KEEPFIXED PLAN);

    DELETE s
    OUTPUT deleted.id INTO @later (id)
    FROM @place AS p
    INNER JOIN {{ box.scheduled }} AS s WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON s.due_at = p.due_at AND s.no = p.id
    WHERE s.id = p.id
    OPTION (KEEPFIXED PLAN);

    IF @is_later = 1
        INSERT INTO @later (id)
        SELECT r.id
        FROM @kept AS k
        INNER JOIN @ready AS r ON r.lane = k.lane AND r.ticket = k.ticket;
    ELSE
    BEGIN
        -- Claimable as it was: back to the same place. A deletion is what tells in every engine whose a row is.
        INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic_key)
        SELECT k.lane, k.ticket, k.id, k.expires_at, k.topic_key
        FROM @kept AS k
        OPTION (KEEPFIXED PLAN);
        SET @affected = @@ROWCOUNT;
        -- One that is claimable anyway has no other time than it had, unless it is given one.
        IF @due IS NOT NULL
            UPDATE m
            SET due_at = @due
            FROM @kept AS k
            INNER JOIN @ready AS r ON r.lane = k.lane AND r.ticket = k.ticket
            INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = r.id
            OPTION (KEEPFIXED PLAN);
    END;

    INSERT INTO @gone (id)
    SELECT l.id
    FROM @later AS l;
    SET @affected += (SELECT COUNT(*) FROM @gone);
    UPDATE m
    SET due_at = ISNULL(@due, @now_at)
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id
    OPTION (KEEPFIXED PLAN);

    SET @moved = {{ settling.array(table="@later") }};
    IF @moved IS NOT NULL
        EXEC {{ box._place }} @ids = @moved;
    SET @groups = {{ settling.groups() }};
    IF @groups IS NOT NULL
        EXEC {{ box._regroup }} @groups = @groups;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
