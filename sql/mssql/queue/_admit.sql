{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
-- Gives freshly written messages their first place: ready under a ticket that is their id, scheduled, or member
-- of their group. Each group here gets a ticket, whether or not it is looked after already: nobody waits, and a
-- ticket too many is dropped by the claim that meets it.
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
    DECLARE @head TABLE (id bigint NOT NULL PRIMARY KEY);

    INSERT INTO @fresh (id, lane, due_at, expires_at, topic_key, group_key)
    SELECT
        m.id, 0 - m.priority, CASE WHEN m.due_at > @now_at THEN m.due_at END, m.expires_at, m.topic + N'.',
        m.group_id + N'.'
    FROM OPENJSON(@ids) AS j
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = CONVERT(bigint, j.value)
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic_key)
    SELECT f.due_at, f.id, f.id, f.expires_at, f.lane, f.topic_key
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

    -- The ticket stands where its own message would, whatever waits before that now: what is before it has a ticket
    -- of its own, and may be gone by the time this is committed.
    INSERT INTO @head (id)
    SELECT MIN(f.id)
    FROM @fresh AS f
    WHERE f.group_key IS NOT NULL
    GROUP BY f.group_key;

    INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic_key, group_key)
    SELECT f.due_at, f.id, f.lane, f.topic_key, f.group_key
    FROM @head AS h
    INNER JOIN @fresh AS f ON f.id = h.id
    WHERE f.due_at IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.ready }} (lane, ticket, topic_key, group_key)
    SELECT f.lane, f.id, f.topic_key, f.group_key
    FROM @head AS h
    INNER JOIN @fresh AS f ON f.id = h.id
    WHERE f.due_at IS NULL
    OPTION (KEEPFIXED PLAN);
END;
