-- Gives freshly written messages their first place: ready under a ticket that is their id, scheduled, or member
-- Gives freshly written messages their first place: ready under a ticket that is their id, scheduled, or member
-- of their group. The first member of each group here puts out a ticket for the group, whether or not it is looked
-- after already: nobody waits, and a ticket too many is dropped by the claim that meets it.
-- returns: none
-- errors: none
-- locks: group
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._admit }}
    @ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @fresh TABLE (
        id bigint NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        due_at datetime2(6),
        expires_at datetime2(6),
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        brings_ticket bit NOT NULL
    );

    INSERT INTO @fresh (id, lane, due_at, expires_at, topic_key, group_key, brings_ticket)
    SELECT
        m.id, -m.priority, CASE WHEN m.due_at > @now_at THEN m.due_at END, m.expires_at, m.topic + N'.',
        m.group_id + N'.',
        CASE
            WHEN m.group_id IS NULL THEN 1
            WHEN ROW_NUMBER() OVER (PARTITION BY m.group_id + N'.' ORDER BY m.id) = 1 THEN 1
            ELSE 0
        END
    FROM OPENJSON(@ids) AS j
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = CONVERT(bigint, j.value);

    INSERT INTO {{ box.group_member }} (group_key, id)
    SELECT f.group_key, f.id
    FROM @fresh AS f
    WHERE f.group_key IS NOT NULL;

    INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic_key, group_key)
    SELECT
        f.due_at, f.id,
        CASE WHEN f.group_key IS NULL THEN f.id END,
        CASE WHEN f.group_key IS NULL THEN f.expires_at END,
        f.lane, f.topic_key, f.group_key
    FROM @fresh AS f
    WHERE f.brings_ticket = 1 AND f.due_at IS NOT NULL;

    INSERT INTO {{ box.ready }} (lane, ticket, expires_at, topic_key, group_key)
    SELECT f.lane, f.id, CASE WHEN f.group_key IS NULL THEN f.expires_at END, f.topic_key, f.group_key
    FROM @fresh AS f
    WHERE f.brings_ticket = 1 AND f.due_at IS NULL;
END;
