{% import "macros/tables.sql" as tables with context %}
-- Messages that a receiver checked but never enqueued; processing tells Seen from a hand-marked Processing.
CREATE TABLE {{ box.seen }} (
    id bigint NOT NULL,
    processing bit NOT NULL,
    CONSTRAINT {{ key.pk_seen }} PRIMARY KEY CLUSTERED (id)
);
ALTER TABLE {{ box.seen }} SET (LOCK_ESCALATION = DISABLE);
{{ tables.grows_at_its_end(key.pk_seen, box.seen) }}
