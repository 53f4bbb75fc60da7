{% import "macros/tables.sql" as tables with context %}
-- Messages that a receiver checked but never enqueued; processing tells Seen from a hand-marked Processing.
CREATE TABLE {{ box.seen }} (
    id bigint NOT NULL,
    processing bit NOT NULL,
    CONSTRAINT {{ key.pk_seen }} PRIMARY KEY CLUSTERED (id)
);
{{ tables.hot(box.seen, key.pk_seen) }}
