{% import "macros/arguments.sql" as arguments with context %}

-- Adds a join's rows in the log to its own counters. The caller has locked the join. Rows that are not committed yet
-- stay in the log.
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._join_compact }}
    @join_id uniqueidentifier
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @gone TABLE (completed int NOT NULL, failed int NOT NULL, created_at datetime2(6) NOT NULL);

    DELETE t
    OUTPUT deleted.completed, deleted.failed, deleted.created_at INTO @gone (completed, failed, created_at)
    FROM {{ db.join_tally }} AS t WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
    WHERE t.join_id = @join_id;
    IF @@ROWCOUNT = 0
        RETURN;

    UPDATE j
    SET
        completed_steps = j.completed_steps + g.completed,
        failed_steps = j.failed_steps + g.failed,
        last_updated_at = CASE WHEN g.last_at > j.last_updated_at THEN g.last_at ELSE j.last_updated_at END
    FROM (
        SELECT
            CONVERT(int, SUM(n.completed)) AS completed, CONVERT(int, SUM(n.failed)) AS failed,
            MAX(n.created_at) AS last_at
        FROM @gone AS n
    ) AS g
    CROSS JOIN {{ db.join }} AS j WITH (ROWLOCK, FORCESEEK)
    WHERE j.join_id = @join_id
    OPTION (KEEPFIXED PLAN);
END;
