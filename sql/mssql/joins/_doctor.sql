{% import "macros/clock.sql" as clock with context %}
{% import "macros/doctor.sql" as doctor with context %}

-- Joins that have not moved for an hour, and those whose steps are over and which nobody resolves. The oldest thousand
-- of those that wait are looked at, and the oldest ten of these shown.
-- returns: check, level, subject, detail, advice; into #pysqlbox_doctor
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._join_doctor }}
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @now_at datetime2(6) = {{ clock.now() }};

    {% call doctor.look("joins", ("schema " ~ schema) | literal, "none is stuck") %}
            SELECT TOP (10)
                CASE WHEN j.is_over = 1 OR j.moved_at < DATEADD(DAY, -1, @now_at) THEN N'warning' ELSE N'note' END AS level,
                CONCAT(N'join ', j.join_id) AS subject,
                CONCAT(
                    CASE
                        WHEN j.is_over = 1 AND j.wait_message_id IS NULL THEN N'all its steps are over, but nobody has called join_wait'
                        WHEN j.is_over = 1 THEN N'all its steps are over, but nobody works on its join.wait message'
                        WHEN j.expected_steps IS NULL
                            THEN CONCAT(N'it is open, ', {{ doctor.counted("j.attached_steps", "step is", "steps are") }}, N' attached, and nobody has called join_wait')
                        WHEN j.attached_steps < j.expected_steps
                            THEN CONCAT(N'only ', j.attached_steps, N' of its ', {{ doctor.counted("j.expected_steps", "step is", "steps are") }}, N' attached')
                        ELSE CONCAT(j.over_steps, N' of its ', {{ doctor.counted("j.expected_steps", "step is", "steps are") }}, N' over')
                    END,
                    N'; it has not moved for ', {{ doctor.lasting("j.moved_at", "@now_at") }},
                    CASE WHEN COUNT(*) OVER () = 1 THEN N'; the only one that is stuck' ELSE CONCAT(N'; one of ', COUNT(*) OVER (), N' that are stuck') END
                ) AS detail,
                CASE
                    WHEN j.is_over = 1 AND j.wait_message_id IS NULL
                        THEN CONCAT({{ ("EXEC " ~ db.join_wait ~ " @join_id = '") | literal }}, j.join_id, N''', …;')
                    WHEN j.is_over = 1 THEN CONCAT({{ ("EXEC " ~ db.join_resolve ~ " @join_id = '") | literal }}, j.join_id, N''';')
                    ELSE CONCAT(
                        {{ ("SELECT * FROM " ~ db.outbox_join_members ~ " WHERE join_id = '") | literal }}, j.join_id,
                        {{ ("'; -- or give it up: EXEC " ~ db.join_cancel ~ " @join_id = '") | literal }}, j.join_id, N''';'
                    )
                END AS advice
            FROM (
                SELECT
                    p.no, p.join_id, p.expected_steps, p.attached_steps, p.wait_message_id,
                    CASE WHEN t.moved_at > p.last_updated_at THEN t.moved_at ELSE p.last_updated_at END AS moved_at,
                    p.completed_steps + p.failed_steps + ISNULL(t.steps, 0) AS over_steps,
                    CASE WHEN p.completed_steps + p.failed_steps + ISNULL(t.steps, 0) >= p.expected_steps THEN 1 ELSE 0 END AS is_over
                FROM (
                    SELECT TOP (1000)
                        w.no, w.join_id, w.expected_steps, w.attached_steps, w.wait_message_id, w.completed_steps, w.failed_steps,
                        w.created_at, w.last_updated_at
                    FROM {{ db.join }} AS w WITH (FORCESEEK)
                    WHERE w.status = N'Pending'
                    ORDER BY w.no
                ) AS p
                OUTER APPLY (
                    SELECT SUM(l.completed + l.failed) AS steps, MAX(l.created_at) AS moved_at
                    FROM {{ db.join_tally }} AS l WITH (FORCESEEK)
                    WHERE l.join_id = p.join_id
                ) AS t
                WHERE p.created_at < DATEADD(MINUTE, -5, @now_at)
            ) AS j
            WHERE j.moved_at < DATEADD(MINUTE, CASE WHEN j.is_over = 1 THEN -5 ELSE -60 END, @now_at)
            ORDER BY j.no
    {% endcall %}
END;
