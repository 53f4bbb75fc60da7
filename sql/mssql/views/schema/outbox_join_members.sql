-- Every step of every join, as one table with readable statuses.
CREATE OR ALTER VIEW {{ db.outbox_join_members }} AS
SELECT
    jm.join_id, LEFT(j.tenant_key, LEN(j.tenant_key) - 1) AS tenant_id, jm.message_id, jm.id, m.topic,
    CASE
        WHEN jm.counted = N'completed' THEN N'Completed'
        WHEN jm.counted = N'failed' THEN N'Failed'
        WHEN n.id IS NOT NULL THEN N'Completed'
        WHEN d.id IS NOT NULL THEN N'Failed'
        ELSE N'Pending'
    END AS status,
    jm.attached_at
FROM {{ db.join_member }} AS jm
INNER JOIN {{ db.join }} AS j ON j.join_id = jm.join_id
LEFT JOIN {{ db.outbox_message }} AS m ON m.id = jm.id
LEFT JOIN {{ db.outbox_done }} AS n ON n.id = jm.id
LEFT JOIN {{ db.outbox_dead }} AS d ON d.id = jm.id;
