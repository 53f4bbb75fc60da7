-- Who changed what, by hand or by the service: written in the transaction of the change.
CREATE TABLE {{ db.audit }} (
    id bigint IDENTITY(1, 1) NOT NULL,
    changed_at datetime2(6) NOT NULL,
    actor nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    action nvarchar(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    subject nvarchar(512) COLLATE Latin1_General_100_BIN2,
    affected bigint,
    detail nvarchar(max) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{ key.pk_audit }} PRIMARY KEY CLUSTERED (id),
    CONSTRAINT {{ key.ck_audit_affected }} CHECK (affected >= 0)
);

CREATE INDEX {{ key.ix_audit_age }} ON {{ db.audit }} (changed_at);
CREATE INDEX {{ key.ix_audit_actor }} ON {{ db.audit }} (actor, id);
CREATE INDEX {{ key.ix_audit_action }} ON {{ db.audit }} (action, id);
