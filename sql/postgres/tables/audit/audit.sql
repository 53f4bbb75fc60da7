-- Who changed what, by hand or by the service: written in the transaction of the change.
CREATE TABLE {{ db.audit }} (
    id bigint GENERATED ALWAYS AS IDENTITY,
    changed_at timestamptz NOT NULL,
    actor text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    subject text COLLATE "C",
    affected bigint,
    detail text,
    CONSTRAINT {{ key.pk_audit }} PRIMARY KEY (id),
    CONSTRAINT {{ key.ck_audit_affected }} CHECK (affected >= 0)
);

CREATE INDEX {{ key.ix_audit_age }} ON {{ db.audit }} (changed_at);
CREATE INDEX {{ key.ix_audit_actor }} ON {{ db.audit }} (actor, id);
CREATE INDEX {{ key.ix_audit_action }} ON {{ db.audit }} (action, id);
