{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/locks.sql" as locks with context %}

-- Folds the tally of done and dead messages into one row a topic, one caller at a time; the others go on without. There are no
-- low marks in T-SQL: a scan passes over the ghosts of deleted rows, and these stay as long as any snapshot, versioned
-- read or readable secondary that is older than the deletion may still need them.
-- rescan: all of it, not only a few thousand rows
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._tick }}
    @rescan bit = 0
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @room int = CASE WHEN @rescan = 1 THEN 1000000 ELSE 5000 END;
    DECLARE @part TABLE (no bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        done bigint NOT NULL,
        dead bigint NOT NULL
    );
    DECLARE @sum TABLE (
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        done bigint NOT NULL,
        dead bigint NOT NULL
    );

    BEGIN TRANSACTION;
    {{ locks.attempt((schema ~ "." ~ box_name ~ ":tick") | literal) }}
    IF @lock_got >= 0
    BEGIN
        INSERT INTO @part (no)
        SELECT TOP (@room) t.no
        FROM {{ box.tally }} AS t WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
        ORDER BY t.no
        OPTION (KEEPFIXED PLAN);

        DELETE t
        OUTPUT deleted.topic_key, deleted.done, deleted.dead INTO @gone (topic_key, done, dead)
        FROM @part AS p
        INNER JOIN {{ box.tally }} AS t WITH (ROWLOCK, FORCESEEK) ON t.no = p.no
        OPTION (KEEPFIXED PLAN);

        INSERT INTO @sum (topic_key, done, dead)
        SELECT g.topic_key, SUM(g.done), SUM(g.dead)
        FROM @gone AS g
        GROUP BY g.topic_key;

        UPDATE t
        SET
            done = t.done + s.done,
            dead = t.dead + s.dead
        FROM @sum AS s
        INNER JOIN {{ box.tally_total }} AS t WITH (ROWLOCK, FORCESEEK) ON t.topic_key = s.topic_key
        OPTION (KEEPFIXED PLAN);

        INSERT INTO {{ box.tally_total }} (topic_key, done, dead)
        SELECT s.topic_key, s.done, s.dead
        FROM @sum AS s
        WHERE NOT EXISTS (SELECT 1 FROM {{ box.tally_total }} AS t WITH (FORCESEEK) WHERE t.topic_key = s.topic_key)
        OPTION (KEEPFIXED PLAN);
    END;
    COMMIT TRANSACTION;
END;
