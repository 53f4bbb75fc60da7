{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/times.sql" as times with context %}

-- Deletes up to batch_size dead, expired or cancelled messages that died longer ago than the retention, oldest
-- first.
-- retention_seconds: from 0 to 1000000000
-- batch_size: from 1 to 10000
-- returns: affected
-- errors: PB001
-- locks: message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.cleanup_dead }}
    @retention_seconds decimal(19, 3),
    @batch_size int = 1000
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @affected int;
    DECLARE @before_at datetime2(6);
{% if box_name == "outbox" %}
    DECLARE @steps nvarchar(max);
{% endif %}
    DECLARE @old TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @locked TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @message TABLE (
        id bigint NOT NULL PRIMARY KEY,
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );

    {{ arguments.check_by(db._check_cleanup ~ " @retention_seconds = @retention_seconds, @batch_size = @batch_size") }}
    SET @before_at = {{ times.before(clock.now(), "@retention_seconds") | indent(4) }};

    BEGIN TRANSACTION;
    -- Found through the index without keeping locks, then locked by id: messages first, in the same order as everybody
    -- else. What somebody else has is passed over.
    INSERT INTO @old (id)
    SELECT TOP (@batch_size) d.id
    FROM {{ box.dead }} AS d
        WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK ({{ key.ix_dead_age }} (died_at)))
    WHERE d.died_at <= @before_at
    ORDER BY d.died_at
    OPTION (KEEPFIXED PLAN);

    INSERT INTO @locked (id)
    SELECT m.id
    FROM @old AS o
    INNER JOIN {{ box.message }} AS m WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = o.id
    OPTION (KEEPFIXED PLAN);

    DELETE d
    OUTPUT deleted.id, deleted.topic_key INTO @gone (id, topic_key)
    FROM @locked AS k
    INNER JOIN {{ box.dead }} AS d WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON d.id = k.id
    WHERE d.died_at <= @before_at
    OPTION (KEEPFIXED PLAN);
    SET @affected = @@ROWCOUNT;
    {{ settling.count_dead("@gone", "-") }}
{% if box_name == "outbox" %}

    IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
    BEGIN
        SET @steps = {{ settling.array() }};
        IF @steps IS NOT NULL
            EXEC {{ db._join_mark }} @ids = @steps, @state = N'failed';
    END;
{% endif %}

    INSERT INTO @message (id, collapse_key)
    SELECT m.id, m.collapse_key + N'.'
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
    WHERE m.collapse_key IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    DELETE m
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id
    OPTION (KEEPFIXED PLAN);

    -- Nobody has to replace it any more.
    DELETE c
    FROM @message AS m
    INNER JOIN {{ box.collapse }} AS c WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON c.collapse_key = m.collapse_key AND c.id = m.id
    OPTION (KEEPFIXED PLAN);
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
