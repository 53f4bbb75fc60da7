-- Deletes up to batch_size dead or expired messages that died longer ago than the retention, oldest first.
-- retention_seconds: from 0 to 1000000000
-- batch_size: from 1 to 10000
-- returns: affected
-- errors: PB001
-- locks: message
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.cleanup_dead }}
    @retention_seconds decimal(12, 3),
    @batch_size int = 1000
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @affected int;
    DECLARE @before_at datetime2(6);
{% if box_name == "outbox" %}
    DECLARE @steps nvarchar(max);
{% endif %}
    DECLARE @old TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);

    EXEC {{ db._check_cleanup }} @retention_seconds = @retention_seconds, @batch_size = @batch_size;
    SET @before_at = DATEADD(
        MILLISECOND, -CONVERT(int, (@retention_seconds - FLOOR(@retention_seconds)) * 1000),
        DATEADD(SECOND, -CONVERT(int, FLOOR(@retention_seconds)), {{ db._now }}())
    );

    BEGIN TRANSACTION;
    -- Found through the index without keeping locks, then locked by key: in the same order as everybody else does.
    INSERT INTO @old (id)
    SELECT TOP (@batch_size) d.id
    FROM {{ box.dead }} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE d.died_at <= @before_at
    ORDER BY d.died_at;

    DELETE d
    OUTPUT deleted.id INTO @gone (id)
    FROM @old AS o
    INNER JOIN {{ box.dead }} AS d WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON d.id = o.id
    WHERE d.died_at <= @before_at;
    SET @affected = @@ROWCOUNT;
{% if box_name == "outbox" %}

    IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
    BEGIN
        SET @steps = (SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g);
        IF @steps IS NOT NULL
            EXEC {{ db._join_mark }} @ids = @steps, @state = N'failed';
    END;
{% endif %}

    DELETE m
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
