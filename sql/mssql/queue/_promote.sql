-- after: _regroup

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/groups.sql" as groups with context %}

-- Moves up to room messages and groups whose time has come to the tail of what is ready, earliest first.
-- Probes, and tickets of a group that has another, become no message. Where most of the room went to such, up to
-- 10,000 rows more are taken, once.
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
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @groups nvarchar(max);
{% if box_name == "outbox" %}
    DECLARE @joins nvarchar(max);
{% endif %}
    DECLARE @left int = @room;
    DECLARE @idle int;
    DECLARE @placed int;
    DECLARE @is_first bit = 1;
    DECLARE @taken TABLE (due_at datetime2(6) NOT NULL, no bigint NOT NULL, PRIMARY KEY (due_at, no));
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
    DECLARE @due TABLE (
        place int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        id bigint NOT NULL,
        expires_at datetime2(6),
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );
    {{ groups.ticket_tables() }}

    -- Twice at most.
    WHILE @left > 0
    BEGIN
        DELETE FROM @taken;
        DELETE FROM @gone;
        INSERT INTO @taken (due_at, no)
        SELECT TOP (@left) s.due_at, s.no
        FROM {{ box.scheduled }} AS s WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE s.due_at <= @now_at
        ORDER BY s.due_at, s.no
        OPTION (KEEPFIXED PLAN);

        DELETE s
{% if box_name == "outbox" %}
        OUTPUT
            deleted.due_at, deleted.no, deleted.id, deleted.expires_at, deleted.lane, deleted.topic_key,
            deleted.group_key, deleted.join_id
        INTO @gone (due_at, no, id, expires_at, lane, topic_key, group_key, join_id)
{% else %}
        OUTPUT
            deleted.due_at, deleted.no, deleted.id, deleted.expires_at, deleted.lane, deleted.topic_key,
            deleted.group_key
        INTO @gone (due_at, no, id, expires_at, lane, topic_key, group_key)
{% endif %}
        FROM @taken AS d
        INNER JOIN {{ box.scheduled }} AS s WITH (ROWLOCK, FORCESEEK) ON s.due_at = d.due_at AND s.no = d.no
        WHERE s.due_at <= @now_at
        OPTION (KEEPFIXED PLAN);

        SET @placed = (SELECT COUNT(*) FROM @due);
        INSERT INTO @due (lane, id, expires_at, topic_key)
        SELECT g.lane, g.id, g.expires_at, g.topic_key
        FROM @gone AS g
        WHERE g.id IS NOT NULL
        ORDER BY g.due_at, g.no
        OPTION (KEEPFIXED PLAN);

        {{ groups.draw_tickets("@due", "place > @placed") | indent(4) }}

        INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic_key)
        SELECT d.lane, t.ticket, d.id, d.expires_at, d.topic_key
        FROM @due AS d
        INNER JOIN @ticket AS t ON t.place = d.place
        WHERE d.place > @placed
        OPTION (KEEPFIXED PLAN);

{% if box_name == "outbox" %}
        -- Another statement: what those who left the probes have counted is committed and shows.
        SET @joins = (SELECT DISTINCT g.join_id FROM @gone AS g WHERE g.join_id IS NOT NULL FOR JSON PATH);
        IF @joins IS NOT NULL
            EXEC {{ db._join_fold }} @joins = @joins;

{% endif %}
        SET @groups = (SELECT DISTINCT g.group_key FROM @gone AS g WHERE g.group_key IS NOT NULL FOR JSON PATH);
        IF @groups IS NOT NULL
            EXEC {{ box._regroup }} @groups = @groups;

        SET @idle = (SELECT COUNT(*) FROM @gone AS g WHERE g.id IS NULL)
            - (SELECT COUNT(DISTINCT g.group_key) FROM @gone AS g WHERE g.group_key IS NOT NULL);
        SET @left = CASE WHEN @is_first = 1 AND @idle * 2 > @room THEN 10000 ELSE 0 END;
        SET @is_first = 0;
    END;
END;
