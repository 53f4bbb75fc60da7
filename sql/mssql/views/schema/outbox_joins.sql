-- Every join with its counters, as one table with readable statuses.
CREATE OR ALTER VIEW {{ db.outbox_joins }} AS
SELECT
    j.join_id, LEFT(j.tenant_key, LEN(j.tenant_key) - 1) AS tenant_id, j.expected_steps,
    CONVERT(int, j.completed_steps + ISNULL(t.completed, 0)) AS completed_steps,
    CONVERT(int, j.failed_steps + ISNULL(t.failed, 0)) AS failed_steps,
    j.status, j.metadata, j.created_at,
    CASE WHEN t.created_at > j.last_updated_at THEN t.created_at ELSE j.last_updated_at END AS last_updated_at,
    j.wait_message_id, j.enqueued_message_id
FROM {{ db.join }} AS j
OUTER APPLY (
    SELECT SUM(c.completed) AS completed, SUM(c.failed) AS failed, MAX(c.created_at) AS created_at
    FROM {{ db.join_tally }} AS c
    WHERE c.join_id = j.join_id
) AS t;
