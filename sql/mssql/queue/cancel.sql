-- after: _bury, _hold, _regroup

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}
{% import "macros/settling.sql" as settling with context %}

-- Calls messages off that are not over yet, whether they wait, for a time or in a group, or are leased: they are
-- Cancelled, a failed step of their joins, and stay with the dead ones until a replay or a discard. The owner of a
-- leased one has lost its lease. Whoever comes first to a message decides; one that somebody else is just moving is
-- waited for. All others, and repeated ids, are passed over, and in an inbox what was never enqueued.
-- ids: not null
-- reason: kept as last_error unless null or empty, up to 16384 characters
-- returns: affected
-- errors: PB001
-- locks: group, lease, message
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.cancel }}
    @ids nvarchar(max),
    @reason nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @affected int = 0;
    DECLARE @id bigint;
    DECLARE @state nvarchar(10);
    DECLARE @group_key nvarchar(256);
    DECLARE @taken nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @open TABLE (
        id bigint NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        due_at datetime2(6),
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @returned TABLE (id bigint NOT NULL PRIMARY KEY, lane int NOT NULL, ticket bigint NOT NULL);
    DECLARE @got TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );

    {{ settling.check_ids() }}
    {{ settling.wanted() }}
    -- LEN passes over trailing blanks, so an end mark is put behind the text.
    IF LEN(@reason + N'.') = 1
        SET @reason = NULL;

    BEGIN TRANSACTION;
    INSERT INTO @open (id, lane, group_key)
    SELECT m.id, 0, m.group_id + N'.'
    FROM @wanted AS w
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = w.id
    WHERE NOT EXISTS (SELECT 1 FROM {{ box.done }} AS n WITH (FORCESEEK) WHERE n.id = m.id)
        AND NOT EXISTS (SELECT 1 FROM {{ box.dead }} AS d WITH (FORCESEEK) WHERE d.id = m.id)
{% if kind == "inbox" %}
        -- One that was never enqueued is nowhere.
        AND m.topic IS NOT NULL
{% endif %}
    OPTION (KEEPFIXED PLAN);

    -- What others are just moving is waited for, and taken where it then is, unless that is its end: the groups and then
    -- the messages are locked one after another in their order, as all do who wait for several.
    {{ groups.wait_all("@open") }}

    SET @id = (SELECT MIN(o.id) FROM @open AS o);
    WHILE @id IS NOT NULL
    BEGIN
        EXEC {{ box._hold }} @id = @id, @state = @state OUTPUT;
        IF @state IS NULL OR @state <> N'pending'
            DELETE FROM @open WHERE id = @id;
        SET @id = (SELECT MIN(o.id) FROM @open AS o WHERE o.id > @id);
    END;

    -- Nobody can move them any more: read now where they stand.
    UPDATE o
    SET lane = 0 - m.priority, due_at = m.due_at
    FROM @open AS o
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = o.id
    OPTION (KEEPFIXED PLAN);

    DELETE l
    OUTPUT deleted.id INTO @got (id)
    FROM {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK)
    WHERE l.id IN (SELECT o.id FROM @open AS o)
    OPTION (KEEPFIXED PLAN);

    DELETE r
    OUTPUT deleted.ticket INTO @got (id)
    FROM @open AS o
    INNER JOIN {{ box.ready }} AS r WITH (ROWLOCK, FORCESEEK) ON r.lane = o.lane AND r.ticket = o.id
    WHERE o.group_key IS NULL AND r.id IS NULL AND r.group_key IS NULL
    OPTION (KEEPFIXED PLAN);

    -- Found through the index, then taken by key: in the same order as a claim does.
    INSERT INTO @returned (id, lane, ticket)
    SELECT r.id, r.lane, r.ticket
    FROM @open AS o
    INNER JOIN {{ box.ready }} AS r WITH (FORCESEEK) ON r.id = o.id AND r.id IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    DELETE r
    OUTPUT deleted.id INTO @got (id)
    FROM @returned AS t
    INNER JOIN {{ box.ready }} AS r WITH (ROWLOCK, FORCESEEK) ON r.lane = t.lane AND r.ticket = t.ticket
    WHERE r.id = t.id
    OPTION (KEEPFIXED PLAN);

    DELETE s
    OUTPUT deleted.id INTO @got (id)
    FROM @open AS o
    INNER JOIN {{ box.scheduled }} AS s WITH (ROWLOCK, FORCESEEK) ON s.due_at = o.due_at AND s.no = o.id
    WHERE s.id = o.id
    OPTION (KEEPFIXED PLAN);

    DELETE gm
    OUTPUT deleted.id INTO @got (id)
    FROM @open AS o
    INNER JOIN {{ box.group_member }} AS gm WITH (ROWLOCK, FORCESEEK) ON gm.group_key = o.group_key AND gm.id = o.id
    OPTION (KEEPFIXED PLAN);

    SET @taken = {{ settling.array(table="@got") }};
    IF @taken IS NOT NULL
    BEGIN
        EXEC {{ box._bury }} @ids = @taken, @error = @reason, @expired = 0, @cancelled = 1;

        INSERT INTO @gone (id, group_key)
        SELECT g.id, o.group_key
        FROM @got AS g
        INNER JOIN @open AS o ON o.id = g.id;
        SET @affected = @@ROWCOUNT;

        SET @groups = {{ settling.groups() }};
        IF @groups IS NOT NULL
            EXEC {{ box._regroup }} @groups = @groups;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
