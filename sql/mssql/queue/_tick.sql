-- Folds the tally of done messages into one row a topic, one caller at a time; the others go on without. Needs no
-- low marks: SQL Server's scans pass the ghost records of deleted rows, which no reader keeps alive.
-- rescan: all of it, not only a few thousand rows
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._tick }}
    @rescan bit = 0
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @got int;
    DECLARE @key bigint;
    DECLARE @resource nvarchar(255);
    DECLARE @room int = CASE WHEN @rescan = 1 THEN 1000000 ELSE 5000 END;
    DECLARE @part TABLE (no bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        done bigint NOT NULL
    );
    DECLARE @sum TABLE (
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        done bigint NOT NULL
    );

    BEGIN TRANSACTION;
    SET @key = CONVERT(bigint, CONVERT(binary(8), HASHBYTES(
        'SHA2_256', {{ (schema ~ "." ~ box_name ~ ":tick") | literal }}
    )));
    SET @resource = CONVERT(nvarchar(255), @key);
    IF SERVERPROPERTY('Babelfish') IS NULL
        EXEC @got = sys.sp_getapplock
            @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
    ELSE
        EXEC sys.sp_executesql
            N'SELECT @got = CONVERT(int, pg_catalog.pg_try_advisory_xact_lock(@key)) - 1;',
            N'@key bigint, @got int OUTPUT', @key = @key, @got = @got OUTPUT;
    IF @got >= 0
    BEGIN
        INSERT INTO @part (no)
        SELECT TOP (@room) t.no
        FROM {{ box.tally }} AS t WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
        ORDER BY t.no;

        DELETE t
        OUTPUT deleted.topic_key, deleted.done INTO @gone (topic_key, done)
        FROM @part AS p
        INNER JOIN {{ box.tally }} AS t WITH (ROWLOCK, FORCESEEK) ON t.no = p.no;

        INSERT INTO @sum (topic_key, done)
        SELECT g.topic_key, SUM(g.done)
        FROM @gone AS g
        GROUP BY g.topic_key;

        UPDATE t
        SET done = t.done + s.done
        FROM @sum AS s
        INNER JOIN {{ box.tally_total }} AS t WITH (ROWLOCK, FORCESEEK) ON t.topic_key = s.topic_key;

        INSERT INTO {{ box.tally_total }} (topic_key, done)
        SELECT s.topic_key, s.done
        FROM @sum AS s
        WHERE NOT EXISTS (SELECT 1 FROM {{ box.tally_total }} AS t WHERE t.topic_key = s.topic_key);
    END;
    COMMIT TRANSACTION;
END;
