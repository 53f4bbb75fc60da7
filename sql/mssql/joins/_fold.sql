-- after: _compact
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}

-- Looks at joins whose probes the caller has taken in an earlier statement: of those that are complete or over the
-- join.wait message becomes ready at the tail, and where the log has grown it is folded.
-- A join's own counters and its log can only be added up under its lock. Nobody waits: one that is locked is looked
-- at again a little later, and so is one with rows in the log that are not committed yet, or are just being so.
-- joins: without repeats, a JSON array of objects with join_id
-- returns: none
-- errors: none
-- locks: join
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._join_fold }}
    @joins nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @no int = 1;
    DECLARE @count int;
    DECLARE @join_id uniqueidentifier;
    {{ locks.variables() }}
    DECLARE @ids nvarchar(max);
    DECLARE @look TABLE (
        no int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        join_id uniqueidentifier NOT NULL,
        is_locked bit NOT NULL,
        is_known bit NOT NULL,
        is_over bit NOT NULL,
        wait_id bigint,
        log_rows int NOT NULL,
        again_milliseconds int
    );
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);

    INSERT INTO @look (join_id, is_locked, is_known, is_over, log_rows, again_milliseconds)
    SELECT CONVERT(uniqueidentifier, p.join_id), 0, 0, 0, 0, 50
    FROM OPENJSON(@joins) WITH (join_id nvarchar(36) '$.join_id') AS p;
    SET @count = @@ROWCOUNT;

    -- Not more than 500 of them a claim: every lock takes a place in memory.
    WHILE @no <= @count AND @no <= 500
    BEGIN
        SELECT @join_id = k.join_id FROM @look AS k WHERE k.no = @no;
        {{ locks.attempt(locks.join("@join_id")) | indent(4) }}
        IF @lock_got >= 0
            UPDATE @look SET is_locked = 1, again_milliseconds = NULL WHERE no = @no;
        SET @no += 1;
    END;

    UPDATE k
    SET
        is_known = 1,
        wait_id = j.wait_id,
        log_rows = t.log_rows,
        is_over = CASE
            WHEN j.status <> N'Pending' OR j.completed_steps + j.failed_steps + t.steps >= j.expected_steps THEN 1
            ELSE 0
        END
    FROM @look AS k
    INNER JOIN {{ db.join }} AS j WITH (FORCESEEK) ON j.join_id = k.join_id
    CROSS APPLY (
        SELECT COUNT(*) AS log_rows, ISNULL(SUM(l.completed + l.failed), 0) AS steps
        FROM {{ db.join_tally }} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE l.join_id = k.join_id
    ) AS t
    WHERE k.is_locked = 1
    OPTION (KEEPFIXED PLAN);

    -- A commit lets its rows go one by one: a probe can be seen while the row that it came with is still locked.
    UPDATE k
    SET again_milliseconds = 200
    FROM @look AS k
    WHERE k.is_known = 1
        AND k.is_over = 0
        AND k.log_rows < (
            SELECT COUNT(*) FROM {{ db.join_tally }} AS l WITH (READUNCOMMITTED, FORCESEEK) WHERE l.join_id = k.join_id
        )
    OPTION (KEEPFIXED PLAN);

    IF EXISTS (SELECT 1 FROM @look AS k WHERE k.is_over = 1 AND k.wait_id IS NOT NULL)
    BEGIN
        DELETE s
        OUTPUT deleted.id INTO @gone (id)
        FROM @look AS k
        INNER JOIN {{ db.outbox_message }} AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
            ON m.id = k.wait_id
        INNER JOIN {{ db.outbox_scheduled }} AS s WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
            ON s.due_at = m.due_at AND s.no = m.id
        WHERE k.is_over = 1 AND s.id = k.wait_id
        OPTION (KEEPFIXED PLAN);

        UPDATE m
        SET due_at = NULL
        FROM @gone AS g
        INNER JOIN {{ db.outbox_message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id
        OPTION (KEEPFIXED PLAN);

        SET @ids = (SELECT {{ arguments.array_of("g.id") }} FROM @gone AS g);
        IF @ids IS NOT NULL
            EXEC {{ db._outbox_place }} @ids = @ids;

        -- One that somebody is just handling, or moving, may have been asked too early.
        UPDATE k
        SET again_milliseconds = 200
        FROM @look AS k
        WHERE k.is_over = 1
            AND EXISTS (SELECT 1 FROM {{ db.outbox_message }} AS m WITH (READUNCOMMITTED, FORCESEEK) WHERE m.id = k.wait_id)
            AND NOT EXISTS (SELECT 1 FROM @gone AS g WHERE g.id = k.wait_id)
            AND NOT EXISTS (
                SELECT 1
                FROM {{ db.outbox_ready }} AS r WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                WHERE r.id = k.wait_id AND r.id IS NOT NULL
            )
            AND NOT EXISTS (
                SELECT 1
                FROM {{ db.outbox_ready }} AS r WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                WHERE r.lane = 0 AND r.ticket = k.wait_id AND r.id IS NULL AND r.group_key IS NULL
            )
            AND NOT EXISTS (
                SELECT 1
                FROM {{ db.outbox_done }} AS n WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                WHERE n.id = k.wait_id
            )
            AND NOT EXISTS (
                SELECT 1
                FROM {{ db.outbox_dead }} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                WHERE d.id = k.wait_id
            )
        OPTION (KEEPFIXED PLAN);
    END;

    SET @no = (SELECT MIN(k.no) FROM @look AS k WHERE k.is_known = 1 AND k.log_rows > 64);
    WHILE @no IS NOT NULL
    BEGIN
        SELECT @join_id = k.join_id FROM @look AS k WHERE k.no = @no;
        EXEC {{ db._join_compact }} @join_id = @join_id;
        SET @no = (SELECT MIN(k.no) FROM @look AS k WHERE k.is_known = 1 AND k.log_rows > 64 AND k.no > @no);
    END;

    -- Steps that were settled while a cleanup was removing their join.
    DELETE t
    FROM @look AS k
    INNER JOIN {{ db.join_tally }} AS t WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON t.join_id = k.join_id
    WHERE k.is_locked = 1 AND k.is_known = 0
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ db.outbox_scheduled }} (due_at, no, lane, topic_key, join_id)
    SELECT
        DATEADD(MILLISECOND, k.again_milliseconds, @now_at), NEXT VALUE FOR {{ db._outbox_ids }}, 0, N'.', k.join_id
    FROM @look AS k
    WHERE k.again_milliseconds IS NOT NULL
    OPTION (KEEPFIXED PLAN);
END;
