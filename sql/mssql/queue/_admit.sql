-- after: _probe

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Gives freshly written messages their first place: ready under a ticket that is their id, scheduled, or member
-- of their group. Each group here gets a ticket, or another look a little later, whether or not it is looked after
-- already: nobody waits, and a ticket too many is dropped by the claim that meets it.
-- returns: none
-- errors: none
-- locks: group
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._admit }}
    @ids nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @fresh TABLE (
        id bigint NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        due_at datetime2(6),
        expires_at datetime2(6),
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @group TABLE (
        ticket bigint NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        due_at datetime2(6),
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        is_unsure bit NOT NULL
    );
    DECLARE @unsure nvarchar(max);

    INSERT INTO @fresh (id, lane, due_at, expires_at, topic_key, group_key)
    SELECT
        m.id, 0 - m.priority, CASE WHEN m.due_at > @now_at THEN m.due_at END, m.expires_at, m.topic + N'.',
        m.group_id + N'.'
    FROM OPENJSON(@ids) AS j
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = CONVERT(bigint, j.value)
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic_key)
    SELECT f.due_at, f.id AS no, f.id, f.expires_at, f.lane, f.topic_key
    FROM @fresh AS f
    WHERE f.group_key IS NULL AND f.due_at IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.ready }} (lane, ticket, expires_at, topic_key)
    SELECT f.lane, f.id, f.expires_at, f.topic_key
    FROM @fresh AS f
    WHERE f.group_key IS NULL AND f.due_at IS NULL
    OPTION (KEEPFIXED PLAN);

    IF NOT EXISTS (SELECT 1 FROM @fresh AS f WHERE f.group_key IS NOT NULL)
        RETURN;

    INSERT INTO {{ box.group_member }} (group_key, id)
    SELECT f.group_key, f.id
    FROM @fresh AS f
    WHERE f.group_key IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    -- The ticket bears a number of our own, but stands where the group's head calls for, whoever wrote that; if the
    -- head cannot be read just now, then where our own member would. The head may be gone by the time this is
    -- committed, and has a ticket as long as it is not: where its place would keep ours from being handed out, the
    -- group is looked at again instead.
    INSERT INTO @group (ticket, lane, due_at, topic_key, group_key, is_unsure)
    SELECT
        o.id,
        CASE WHEN m.id IS NULL THEN o.lane ELSE 0 - m.priority END,
        CASE WHEN m.id IS NULL THEN o.due_at WHEN m.due_at > @now_at THEN m.due_at END,
        CASE WHEN m.id IS NULL THEN o.topic_key ELSE m.topic + N'.' END,
        o.group_key,
        CASE WHEN m.topic + N'.' <> o.topic_key OR m.due_at > ISNULL(o.due_at, @now_at) THEN 1 ELSE 0 END
    FROM (
        SELECT f.group_key, MIN(f.id) AS id
        FROM @fresh AS f
        WHERE f.group_key IS NOT NULL
        GROUP BY f.group_key
    ) AS g
    INNER JOIN @fresh AS o ON o.id = g.id
    CROSS APPLY (
        SELECT TOP (1) gm.id
        FROM {{ box.group_member }} AS gm WITH (FORCESEEK)
        WHERE gm.group_key = g.group_key
        ORDER BY gm.id
    ) AS h
    LEFT JOIN {{ box.message }} AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = h.id
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic_key, group_key)
    SELECT g.due_at, g.ticket, g.lane, g.topic_key, g.group_key
    FROM @group AS g
    WHERE g.due_at IS NOT NULL AND g.is_unsure = 0
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.ready }} (lane, ticket, topic_key, group_key)
    SELECT g.lane, g.ticket, g.topic_key, g.group_key
    FROM @group AS g
    WHERE g.due_at IS NULL AND g.is_unsure = 0
    OPTION (KEEPFIXED PLAN);

    SET @unsure = (SELECT g.group_key FROM @group AS g WHERE g.is_unsure = 1 FOR JSON PATH);
    IF @unsure IS NOT NULL
        EXEC {{ box._probe }} @groups = @unsure;
END;
