-- Every step of every join with what became of it.
CREATE OR REPLACE VIEW {{ db.outbox_join_members }} AS
SELECT
    jm.join_id, j.tenant_id, jm.message_id, jm.id, m.topic,
    CASE
        WHEN jm.counted = 'completed' THEN 'Completed'
        WHEN jm.counted = 'failed' THEN 'Failed'
        WHEN n.id IS NOT NULL THEN 'Completed'
        WHEN d.id IS NOT NULL THEN 'Failed'
        ELSE 'Pending'
    END AS status,
    jm.attached_at
FROM {{ db.join_member }} AS jm
INNER JOIN {{ db.join }} AS j ON j.join_id = jm.join_id
LEFT JOIN {{ db.outbox_message }} AS m ON m.id = jm.id
LEFT JOIN LATERAL (
    -- The one row that can hold the id: no run is longer than 1000, and none overlaps another.
    SELECT run.id, run.span
    FROM {{ db.outbox_done }} AS run
    WHERE run.id <= jm.id AND run.id > jm.id - 1000
    ORDER BY run.id DESC
    LIMIT 1
) AS n ON n.id + n.span > jm.id
LEFT JOIN {{ db.outbox_dead }} AS d ON d.id = jm.id;
