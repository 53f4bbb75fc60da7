-- after: _lock_groups, _regroup

-- Marks messages done. Only those that this owner holds; all others, and repeated ids, are passed over.
-- owner_token: not the nil uuid
-- ids: not null
-- returns: affected
-- errors: PB001
-- locks: group, lease
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.ack }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6);
    DECLARE @affected int;
    DECLARE @groups nvarchar(max);
{% if box_name == "outbox" %}
    DECLARE @steps nvarchar(max);
{% endif %}
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );

    IF @owner_token IS NULL
        OR @owner_token = '00000000-0000-0000-0000-000000000000'
        OR @ids IS NULL
        OR ISJSON(@ids) = 0
        OR EXISTS (SELECT 1 FROM OPENJSON(@ids) AS j WHERE j.type <> 0 AND TRY_CONVERT(bigint, j.value) IS NULL)
        OR CHARINDEX(N'[', @ids + N'[') > CHARINDEX(N'{', @ids + N'{')
        EXEC {{ db._check_settling }} @owner_token = @owner_token, @ids = @ids;
    INSERT INTO @wanted (id)
    SELECT DISTINCT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j
    WHERE j.value IS NOT NULL;

    BEGIN TRANSACTION;
    -- Whether any group is held at all may be looked up without a lock: this owner's own leases are there to see.
    IF EXISTS (SELECT 1 FROM {{ box.lease }} AS l WITH (READUNCOMMITTED) WHERE l.group_key IS NOT NULL)
        EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;

    -- Without a join: on Babelfish that would lose the leases that somebody has just extended or held.
    DELETE l
    OUTPUT deleted.id, deleted.topic_key, deleted.group_key INTO @gone (id, topic_key, group_key)
    FROM {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK)
    WHERE l.owner_token = @owner_token AND l.id IN (SELECT w.id FROM @wanted AS w);
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        SET @now_at = {{ db._now }}();
        INSERT INTO {{ box.done }} (id, processed_at, processed_by)
        SELECT g.id, @now_at, @owner_token
        FROM @gone AS g;

        INSERT INTO {{ box.tally }} (topic_key, done)
        SELECT g.topic_key, COUNT(*)
        FROM @gone AS g
        GROUP BY g.topic_key;
{% if box_name == "outbox" %}

        IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
        BEGIN
            SET @steps = (SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g);
            EXEC {{ db._join_count }} @ids = @steps, @state = N'completed';
        END;
{% endif %}

        SET @groups = (SELECT DISTINCT g.group_key FROM @gone AS g WHERE g.group_key IS NOT NULL FOR JSON PATH);
        IF @groups IS NOT NULL
            EXEC {{ box._regroup }} @groups = @groups;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
