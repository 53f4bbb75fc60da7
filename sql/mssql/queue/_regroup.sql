-- after: _probe

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}

-- Gives each of these groups that nobody holds the ticket it is due: now, or when its head's time comes. A group
-- without members needs none, for whoever is just adding one brings a ticket along. What somebody else has locked,
-- and on Babelfish everything under an older snapshot, is looked at again later instead: what shows now does not
-- settle it.
-- returns: none
-- errors: none
-- locks: group
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._regroup }}
    @groups nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @level nvarchar(60);
    DECLARE @group_key nvarchar(256);
    DECLARE @busy nvarchar(max);
    DECLARE @group TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        is_busy bit NOT NULL
    );
    DECLARE @head TABLE (
        place int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        id bigint NOT NULL,
        due_at datetime2(6),
        lane int NOT NULL,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );
    {{ groups.ticket_tables() }}

    IF SERVERPROPERTY('Babelfish') IS NOT NULL
    BEGIN
        {{ groups.read_level() | indent(4) }}
        IF @level <> N'read committed'
        BEGIN
            EXEC {{ box._probe }} @groups = @groups;
            RETURN;
        END;
    END;

    INSERT INTO @group (group_key, is_busy)
    SELECT {{ 'g.group_key' | json_text }}, 0
    FROM OPENJSON(@groups) WITH (group_key nvarchar(max) '$.group_key') AS g;

    {{ groups.attempt_all() }}

    -- The head is read by its committed version, however locked its row is; its message is not, for one that is just
    -- being renewed is looked at again.
    INSERT INTO @head (id, due_at, lane, topic_key, group_key)
    SELECT
        h.id,
        CASE
            WHEN m.id IS NULL THEN DATEADD(MILLISECOND, 200, @now_at)
            WHEN m.due_at > @now_at THEN m.due_at
        END,
        ISNULL(0 - m.priority, 0), ISNULL(m.topic, N'') + N'.', g.group_key
    FROM @group AS g
    CROSS APPLY (
        SELECT TOP (1) gm.id
        FROM {{ box.group_member }} AS gm WITH (FORCESEEK)
        WHERE gm.group_key = g.group_key
        ORDER BY gm.id
    ) AS h
    LEFT JOIN {{ box.message }} AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = h.id
    WHERE g.is_busy = 0 AND NOT {{ groups.is_held("g.group_key") | indent(4) }}
    ORDER BY h.id
    OPTION (KEEPFIXED PLAN);

    {{ groups.draw_tickets("@head") }}

    INSERT INTO {{ box.ready }} (lane, ticket, topic_key, group_key)
    SELECT h.lane, t.ticket, h.topic_key, h.group_key
    FROM @head AS h
    INNER JOIN @ticket AS t ON t.place = h.place
    WHERE h.due_at IS NULL
    OPTION (KEEPFIXED PLAN);

    -- The head's id is the number: however many tickets of a waiting group come by, one row waits for it.
    INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic_key, group_key)
    SELECT h.due_at, h.id, h.lane, h.topic_key, h.group_key
    FROM @head AS h
    WHERE h.due_at IS NOT NULL
        AND NOT EXISTS (
            SELECT 1 FROM {{ box.scheduled }} AS s WITH (FORCESEEK) WHERE s.due_at = h.due_at AND s.no = h.id
        )
    OPTION (KEEPFIXED PLAN);

    SET @busy = (SELECT g.group_key FROM @group AS g WHERE g.is_busy = 1 FOR JSON PATH);
    IF @busy IS NOT NULL
        EXEC {{ box._probe }} @groups = @busy;
END;
