-- after: _regroup

-- Moves up to room messages and groups whose time has come to the tail of what is ready, earliest first.
{% if box_name == "outbox" %}
-- Among them are probes of joins: whoever takes them looks whether those joins are complete.
{% endif %}
-- returns: none
-- errors: none
{% if box_name == "outbox" %}
-- locks: join, group
{% else %}
-- locks: group
{% endif %}
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._promote }}
    @room int
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @groups nvarchar(max);
{% if box_name == "outbox" %}
    DECLARE @joins nvarchar(max);
{% endif %}
    DECLARE @spare int;
    DECLARE @more int;
    DECLARE @due TABLE (due_at datetime2(6) NOT NULL, no bigint NOT NULL, PRIMARY KEY (due_at, no));
    DECLARE @gone TABLE (
        due_at datetime2(6) NOT NULL,
        no bigint NOT NULL,
        id bigint,
        expires_at datetime2(6),
        lane int NOT NULL,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
{% if box_name == "outbox" %}
        join_id uniqueidentifier,
{% endif %}
        PRIMARY KEY (due_at, no)
    );
    DECLARE @drawn TABLE (ticket bigint NOT NULL PRIMARY KEY);

    INSERT INTO @due (due_at, no)
    SELECT TOP (@room) s.due_at, s.no
    FROM {{ box.scheduled }} AS s WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE s.due_at <= @now_at
    ORDER BY s.due_at, s.no;

    DELETE s
{% if box_name == "outbox" %}
    OUTPUT
        deleted.due_at, deleted.no, deleted.id, deleted.expires_at, deleted.lane, deleted.topic_key, deleted.group_key,
        deleted.join_id
    INTO @gone (due_at, no, id, expires_at, lane, topic_key, group_key, join_id)
{% else %}
    OUTPUT
        deleted.due_at, deleted.no, deleted.id, deleted.expires_at, deleted.lane, deleted.topic_key, deleted.group_key
    INTO @gone (due_at, no, id, expires_at, lane, topic_key, group_key)
{% endif %}
    FROM @due AS d
    INNER JOIN {{ box.scheduled }} AS s WITH (ROWLOCK, FORCESEEK) ON s.due_at = d.due_at AND s.no = d.no
    WHERE s.due_at <= @now_at;

    INSERT INTO @drawn (ticket)
    SELECT NEXT VALUE FOR {{ box._ids }}
    FROM @gone AS g
    WHERE g.id IS NOT NULL;

    INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic_key)
    SELECT d.lane, t.ticket, d.id, d.expires_at, d.topic_key
    FROM (
        SELECT g.lane, g.id, g.expires_at, g.topic_key, ROW_NUMBER() OVER (ORDER BY g.due_at, g.no) AS place
        FROM @gone AS g
        WHERE g.id IS NOT NULL
    ) AS d
    INNER JOIN (
        SELECT n.ticket, ROW_NUMBER() OVER (ORDER BY n.ticket) AS place
        FROM @drawn AS n
    ) AS t ON t.place = d.place;

{% if box_name == "outbox" %}
    -- Another statement: what those who left the probes have counted is committed and shows.
    SET @joins = (SELECT DISTINCT g.join_id FROM @gone AS g WHERE g.join_id IS NOT NULL FOR JSON PATH);
    IF @joins IS NOT NULL
        EXEC {{ db._join_fold }} @joins = @joins;

{% endif %}
    SET @groups = (SELECT DISTINCT g.group_key FROM @gone AS g WHERE g.group_key IS NOT NULL FOR JSON PATH);
    IF @groups IS NOT NULL
        EXEC {{ box._regroup }} @groups = @groups;

    -- Probes, and tickets of a group that has another, take room from messages; where there are many, they go at once.
    SET @spare = (SELECT COUNT(*) FROM @gone AS g WHERE g.id IS NULL)
        - (SELECT COUNT(DISTINCT g.group_key) FROM @gone AS g WHERE g.group_key IS NOT NULL);
    SET @more = CASE WHEN @room < 1000 THEN 10000 ELSE @room * 10 END;
    IF @spare * 2 > @room AND @room < 1000000
        EXEC {{ box._promote }} @room = @more;
END;
