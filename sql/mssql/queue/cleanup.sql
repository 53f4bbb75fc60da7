{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}
{% import "macros/times.sql" as times with context %}
{% import "macros/upkeep.sql" as upkeep with context %}

-- Deletes up to batch_size Done messages older than the retention, oldest first, and nothing that is not Done.
-- One short transaction that skips locked rows; call it until it answers 0.
{% if kind == "outbox" %}
-- Deduplication keys past their window go too, uncounted.
{% endif %}
{% if box_name == "outbox" %}
-- So do joins that were over, and last changed, before the retention.
{% endif %}
-- retention_seconds: from 0 to 1000000000
-- batch_size: from 1 to 10000
-- returns: affected
-- errors: PB001
{% if box_name == "outbox" %}
-- locks: join, message
{% else %}
-- locks: message
{% endif %}
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.cleanup }}
    @retention_seconds decimal(19, 3),
    @batch_size int = 1000
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @affected int;
    DECLARE @before_at datetime2(6);
{% if box_name == "outbox" %}
    DECLARE @steps nvarchar(max);
{% endif %}
    DECLARE @old TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @message TABLE (
        id bigint NOT NULL PRIMARY KEY,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
{% if kind == "outbox" %}
    DECLARE @window_seconds decimal(18, 6);
    DECLARE @key TABLE (dedup_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
{% endif %}

    {{ arguments.check_by(db._check_cleanup ~ " @retention_seconds = @retention_seconds, @batch_size = @batch_size") }}
    SET @before_at = {{ times.before(clock.now(), "@retention_seconds") | indent(4) }};

    BEGIN TRANSACTION;
{% if box_name == "outbox" %}
    EXEC {{ db._join_cleanup }} @until_at = @before_at, @batch_size = @batch_size;

{% endif %}
    -- Found through the index without keeping locks, then locked by id: messages first, in the same order as everybody
    -- else. What somebody else has is passed over.
    INSERT INTO @old (id)
    SELECT TOP (@batch_size) n.id
    FROM {{ box.done }} AS n
        WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK ({{ key.ix_done_age }} (processed_at)))
    WHERE n.processed_at <= @before_at
    ORDER BY n.processed_at
    OPTION (KEEPFIXED PLAN);

    INSERT INTO @message (id, topic_key, collapse_key)
    SELECT m.id, m.topic + N'.', m.collapse_key + N'.'
    FROM @old AS o
    INNER JOIN {{ box.message }} AS m WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = o.id
    OPTION (KEEPFIXED PLAN);

    DELETE n
    OUTPUT deleted.id INTO @gone (id)
    FROM @message AS m
    INNER JOIN {{ box.done }} AS n WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON n.id = m.id
    WHERE n.processed_at <= @before_at
    OPTION (KEEPFIXED PLAN);
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        DELETE FROM @message WHERE id NOT IN (SELECT g.id FROM @gone AS g);

        DELETE m
        FROM @gone AS g
        INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id
        OPTION (KEEPFIXED PLAN);

        INSERT INTO {{ box.tally }} (topic_key, done)
        SELECT m.topic_key, -COUNT(*)
        FROM @message AS m
        WHERE m.topic_key IS NOT NULL
        GROUP BY m.topic_key;

        DELETE c
        FROM @message AS m
        INNER JOIN {{ box.collapse }} AS c WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
            ON c.collapse_key = m.collapse_key AND c.id = m.id
        WHERE m.collapse_key IS NOT NULL
        OPTION (KEEPFIXED PLAN);
{% if box_name == "outbox" %}

        IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
        BEGIN
            SET @steps = {{ settling.array() }};
            EXEC {{ db._join_mark }} @ids = @steps, @state = N'completed';
        END;
{% endif %}
    END;
{% if kind == "outbox" %}

    SELECT @window_seconds = CONVERT(decimal(18, 6), s.value)
    FROM {{ box.settings }} AS s
    WHERE s.name = N'dedup_window_seconds';
    SET @before_at = {{ times.before(clock.now(), "@window_seconds") | indent(4) }};
    INSERT INTO @key (dedup_key)
    SELECT TOP (@batch_size) d.dedup_key
    FROM {{ box.dedup }} AS d
        WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK ({{ key.ix_dedup_age }} (seen_at)))
    WHERE d.seen_at <= @before_at
    ORDER BY d.seen_at;

    DELETE d
    FROM @key AS k
    INNER JOIN {{ box.dedup }} AS d WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON d.dedup_key = k.dedup_key
    WHERE d.seen_at <= @before_at;
{% endif %}

    {{ upkeep.note("cleanup") }}
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
