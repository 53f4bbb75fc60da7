-- Messages that a receiver checked but never enqueued; processing tells Seen from a hand-marked Processing.
CREATE TABLE {{ box.seen }} (
    id bigint NOT NULL,
    processing bit NOT NULL,
    CONSTRAINT {{ key.pk_seen }} PRIMARY KEY CLUSTERED (id)
);
ALTER TABLE {{ box.seen }} SET (LOCK_ESCALATION = DISABLE);
