{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/locks.sql" as locks with context %}

-- Deletes up to batch_size joins that were over, and last changed, by this time, longest over first, with their
-- steps and what the log has of them. Fewer if they have very many steps; skips locked ones.
-- returns: none
-- errors: none
-- locks: join
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._join_cleanup }}
    @until_at datetime2(6),
    @batch_size int
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @no int = 1;
    DECLARE @count int;
    DECLARE @join_id uniqueidentifier;
    {{ locks.variables() }}
    -- Every lock takes a place in memory.
    DECLARE @room int = CASE WHEN @batch_size > 500 THEN 500 ELSE @batch_size END;
    DECLARE @old TABLE (
        no int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        join_id uniqueidentifier NOT NULL,
        attached_steps int NOT NULL
    );
    DECLARE @gone TABLE (join_id uniqueidentifier NOT NULL PRIMARY KEY);

    INSERT INTO @old (join_id, attached_steps)
    SELECT TOP (@room) j.join_id, j.attached_steps
    FROM {{ db.join }} AS j WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE j.finished_at IS NOT NULL
        AND j.finished_at <= @until_at
        AND j.last_updated_at <= @until_at
        AND NOT EXISTS (
            SELECT 1
            FROM {{ db.join_tally }} AS t WITH (READUNCOMMITTED, FORCESEEK)
            WHERE t.join_id = j.join_id AND t.created_at > @until_at
        )
    ORDER BY j.finished_at;
    SET @count = @@ROWCOUNT;

    WHILE @no <= @count
    BEGIN
        SELECT @join_id = o.join_id FROM @old AS o WHERE o.no = @no;
        {{ locks.attempt(locks.join("@join_id")) | indent(4) }}
        IF @lock_got < 0
            DELETE FROM @old WHERE no = @no;
        SET @no += 1;
    END;

    DELETE j
    OUTPUT deleted.join_id INTO @gone (join_id)
    FROM (
        SELECT c.join_id, SUM(CONVERT(bigint, c.attached_steps)) OVER (ORDER BY c.no) - c.attached_steps AS steps_before
        FROM @old AS c
    ) AS o
    INNER JOIN {{ db.join }} AS j WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON j.join_id = o.join_id
    WHERE o.steps_before <= 10 * @batch_size
        AND j.finished_at <= @until_at
        AND j.last_updated_at <= @until_at
    OPTION (KEEPFIXED PLAN);

    DELETE jm
    FROM {{ db.join_member }} AS jm WITH (ROWLOCK, FORCESEEK)
    WHERE jm.join_id IN (SELECT g.join_id FROM @gone AS g)
    OPTION (KEEPFIXED PLAN);

    -- A step that is just being counted leaves a row behind, and with it a probe whose taker removes it.
    DELETE t
    FROM @gone AS g
    INNER JOIN {{ db.join_tally }} AS t WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON t.join_id = g.join_id
    OPTION (KEEPFIXED PLAN);
END;
