{% import "macros/tables.sql" as tables with context %}
-- What was processed, when, by whom. Appended by ack, trimmed by cleanup.
CREATE TABLE {{ box.done }} (
    id bigint NOT NULL,
    processed_at datetime2(6) NOT NULL,
    processed_by uniqueidentifier,
    CONSTRAINT {{ key.pk_done }} PRIMARY KEY CLUSTERED (id)
);
{{ tables.hot(box.done, key.pk_done) }}

CREATE INDEX {{ key.ix_done_age }} ON {{ box.done }} (processed_at);
