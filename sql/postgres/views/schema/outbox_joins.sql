-- Every join with its true counters: its own plus what is still in the log.
CREATE OR REPLACE VIEW {{ db.outbox_joins }} AS
SELECT
    j.join_id, j.tenant_id, j.expected_steps,
    (j.completed_steps + t.completed)::integer AS completed_steps,
    (j.failed_steps + t.failed)::integer AS failed_steps,
    j.status, j.metadata, j.created_at,
    greatest(j.last_updated_at, t.last_at, m.attached_at) AS last_updated_at,
    j.wait_message_id, j.enqueued_message_id
FROM {{ db.join }} AS j
CROSS JOIN LATERAL (
    SELECT
        coalesce(sum(l.completed), 0) AS completed,
        coalesce(sum(l.failed), 0) AS failed,
        max(l.created_at) AS last_at
    FROM {{ db.join_tally }} AS l
    WHERE l.join_id = j.join_id
) AS t
LEFT JOIN LATERAL (
    SELECT jm.attached_at FROM {{ db.join_member }} AS jm WHERE jm.join_id = j.join_id ORDER BY jm.join_id, jm.no DESC LIMIT 1
) AS m ON true;
