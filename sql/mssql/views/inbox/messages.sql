-- Every message of the box with where it stands, as one table with readable statuses.
CREATE OR ALTER VIEW {{ box.messages }} AS
SELECT
    m.id,
    LEFT(m.message_id_key, LEN(m.message_id_key) - 1) AS message_id,
    LEFT(m.source_key, LEN(m.source_key) - 1) AS source,
    m.topic, m.payload, m.hash, m.group_id, m.priority, m.collapse_key, m.headers,
    CASE
        WHEN n.id IS NOT NULL THEN N'Done'
        WHEN d.expired = 1 THEN N'Expired'
        WHEN d.cancelled = 1 THEN N'Cancelled'
        WHEN d.id IS NOT NULL THEN N'Dead'
        WHEN s.processing = 1 THEN N'Processing'
        WHEN s.id IS NOT NULL THEN N'Seen'
        ELSE N'Processing'
    END AS status,
    m.attempt, m.first_seen_at, m.last_seen_at, m.due_at, m.expires_at, m.last_error,
    l.owner_token, l.locked_until, n.processed_at, n.processed_by, d.died_at
FROM {{ box.message }} AS m
LEFT JOIN {{ box.done }} AS n ON n.id = m.id
LEFT JOIN {{ box.lease }} AS l ON l.id = m.id
LEFT JOIN {{ box.dead }} AS d ON d.id = m.id
LEFT JOIN {{ box.seen }} AS s ON s.id = m.id;
