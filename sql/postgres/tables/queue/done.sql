-- What was processed, when, by whom. Appended by ack, trimmed by cleanup.
CREATE TABLE {{ box.done }} (
    id bigint NOT NULL,
    processed_at timestamptz NOT NULL,
    processed_by uuid,
    CONSTRAINT {{ key.pk_done }} PRIMARY KEY (id)
);

CREATE INDEX {{ key.ix_done_age }} ON {{ box.done }} (processed_at);
