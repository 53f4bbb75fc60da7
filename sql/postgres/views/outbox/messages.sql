-- Every message of the box with where it stands, as one table with readable statuses.
CREATE OR REPLACE VIEW {{ box.messages }} AS
SELECT
    m.id, m.message_id, m.topic, m.payload, m.correlation_id, m.group_id, m.priority, m.dedup_key, m.collapse_key,
    m.headers,
    CASE
        WHEN n.id IS NOT NULL THEN 'Done'
        WHEN l.id IS NOT NULL THEN 'InProgress'
        WHEN d.id IS NULL THEN 'Ready'
        WHEN d.expired THEN 'Expired'
        WHEN d.cancelled THEN 'Cancelled'
        ELSE 'Failed'
    END AS status,
    m.attempt, m.created_at, m.due_at, m.expires_at, m.last_error,
    l.owner_token, l.locked_until, n.processed_at, n.processed_by, d.died_at
FROM {{ box.message }} AS m
LEFT JOIN LATERAL (
    -- The one row that can hold the id: no run is longer than 1000, and none overlaps another.
    SELECT run.id, run.span, run.processed_at, run.processed_by
    FROM {{ box.done }} AS run
    WHERE run.id <= m.id AND run.id > m.id - 1000
    ORDER BY run.id DESC
    LIMIT 1
) AS n ON n.id + n.span > m.id
LEFT JOIN {{ box.lease }} AS l ON l.id = m.id
LEFT JOIN {{ box.dead }} AS d ON d.id = m.id;
