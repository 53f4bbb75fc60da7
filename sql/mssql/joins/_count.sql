{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Counts these messages, which the caller has just settled, for the joins that they are steps of: one row a join in
-- the log, and a probe that has the next claim look whether the join is complete. A step that counted before does not
-- count again. A statement of its own after the one that settled: who attached meanwhile had made that one wait.
-- state: completed or failed
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._join_count }}
    @ids nvarchar(max),
    @state nvarchar(10)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @step TABLE (join_id uniqueidentifier NOT NULL PRIMARY KEY, steps int NOT NULL);

    INSERT INTO @wanted (id)
    SELECT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j;

    INSERT INTO @step (join_id, steps)
    SELECT jm.join_id, COUNT(*)
    FROM @wanted AS w
    INNER JOIN {{ db.join_member }} AS jm WITH (ROWLOCK, FORCESEEK) ON jm.id = w.id
    WHERE jm.counted IS NULL
    GROUP BY jm.join_id
    OPTION (KEEPFIXED PLAN);
    IF @@ROWCOUNT = 0
        RETURN;

    SET @now_at = {{ clock.now() }};
    INSERT INTO {{ db.join_tally }} (join_id, completed, failed, created_at)
    SELECT
        s.join_id, CASE WHEN @state = N'completed' THEN s.steps ELSE 0 END,
        CASE WHEN @state = N'completed' THEN 0 ELSE s.steps END, @now_at
    FROM @step AS s
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ db.outbox_scheduled }} (due_at, no, lane, topic_key, join_id)
    SELECT @now_at, NEXT VALUE FOR {{ db._outbox_ids }}, 0, N'.', s.join_id
    FROM @step AS s
    OPTION (KEEPFIXED PLAN);
END;
