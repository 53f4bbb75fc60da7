-- Who changed what, and when.
CREATE OR ALTER VIEW {{ db.audit_log }} AS
SELECT a.id, a.changed_at, a.actor, a.action, a.subject, a.affected, a.detail
FROM {{ db.audit }} AS a;
