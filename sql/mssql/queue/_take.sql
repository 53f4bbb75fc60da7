-- after: _hold

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}

-- Takes messages out of wherever they are, unless they are over: waiting, or leased to anybody.
-- The caller decides what becomes of them, in the same transaction; their groups get new tickets at the end.
-- What another transaction is just moving is waited for, and taken where it then is, unless that is its end: the groups
-- and then the messages are locked one after another in their order, as all do who wait for several.
-- ids: each once, a JSON array
-- taken: the answer, likewise; null if there are none
-- returns: bigint[]; in taken, null if there are none
-- errors: none
-- locks: group, lease, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._take }}
    @ids nvarchar(max),
    @taken nvarchar(max) OUTPUT
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @id bigint;
    DECLARE @state nvarchar(10);
    DECLARE @group_key nvarchar(256);
    DECLARE @open TABLE (
        id bigint NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        due_at datetime2(6),
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @returned TABLE (id bigint NOT NULL PRIMARY KEY, lane int NOT NULL, ticket bigint NOT NULL);
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);

    INSERT INTO @open (id, lane, group_key)
    SELECT m.id, 0, m.group_id + N'.'
    FROM OPENJSON(@ids) AS j
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = CONVERT(bigint, j.value)
    WHERE NOT EXISTS (SELECT 1 FROM {{ box.done }} AS n WITH (FORCESEEK) WHERE n.id = m.id)
        AND NOT EXISTS (SELECT 1 FROM {{ box.dead }} AS d WITH (FORCESEEK) WHERE d.id = m.id)
{% if kind == "inbox" %}
        -- One that was never enqueued is nowhere.
        AND m.topic IS NOT NULL
{% endif %}
    OPTION (KEEPFIXED PLAN);

    SET @group_key = (SELECT MIN(o.group_key) FROM @open AS o);
    WHILE @group_key IS NOT NULL
    BEGIN
        {{ locks.wait(locks.group("@group_key"), "group") | indent(8) }}
        SET @group_key = (SELECT MIN(o.group_key) FROM @open AS o WHERE o.group_key > @group_key);
    END;

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
    OUTPUT deleted.id INTO @gone (id)
    FROM {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK)
    WHERE l.id IN (SELECT o.id FROM @open AS o)
    OPTION (KEEPFIXED PLAN);

    DELETE r
    OUTPUT deleted.ticket INTO @gone (id)
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
    OUTPUT deleted.id INTO @gone (id)
    FROM @returned AS t
    INNER JOIN {{ box.ready }} AS r WITH (ROWLOCK, FORCESEEK) ON r.lane = t.lane AND r.ticket = t.ticket
    WHERE r.id = t.id
    OPTION (KEEPFIXED PLAN);

    DELETE s
    OUTPUT deleted.id INTO @gone (id)
    FROM @open AS o
    INNER JOIN {{ box.scheduled }} AS s WITH (ROWLOCK, FORCESEEK) ON s.due_at = o.due_at AND s.no = o.id
    WHERE s.id = o.id
    OPTION (KEEPFIXED PLAN);

    DELETE gm
    OUTPUT deleted.id INTO @gone (id)
    FROM @open AS o
    INNER JOIN {{ box.group_member }} AS gm WITH (ROWLOCK, FORCESEEK) ON gm.group_key = o.group_key AND gm.id = o.id
    OPTION (KEEPFIXED PLAN);

    SET @taken = (SELECT {{ arguments.array_of("g.id") }} FROM @gone AS g);
END;
