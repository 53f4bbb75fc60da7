-- Every message of the box with where it stands, as one table with readable statuses.
CREATE OR ALTER VIEW {{ box.messages }} AS
SELECT
    m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.dedup_key, m.collapse_key,
    m.headers,
    CASE
        WHEN n.id IS NOT NULL THEN N'Done'
        WHEN l.id IS NOT NULL THEN N'InProgress'
        WHEN d.id IS NULL THEN N'Ready'
        WHEN d.expired = 1 THEN N'Expired'
        WHEN d.cancelled = 1 THEN N'Cancelled'
        ELSE N'Failed'
    END AS status,
    m.attempt, m.created_at, m.due_at, m.expires_at, m.last_error,
    l.owner_token, l.locked_until, n.processed_at, n.processed_by, d.died_at
FROM {{ box.message }} AS m
LEFT JOIN {{ box.done }} AS n ON n.id = m.id
LEFT JOIN {{ box.lease }} AS l ON l.id = m.id
LEFT JOIN {{ box.dead }} AS d ON d.id = m.id;
