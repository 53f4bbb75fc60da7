-- What was processed, when, by whom. Appended by ack, trimmed by cleanup. A row stands for span messages with consecutive
-- ids, of which id is the first: a batch that was taken in order and acknowledged at once is one row. No two overlap.
CREATE TABLE {{ box.done }} (
    id bigint NOT NULL,
    processed_at timestamptz NOT NULL,
    span integer NOT NULL,
    processed_by uuid,
    CONSTRAINT {{ key.pk_done }} PRIMARY KEY (id),
    CONSTRAINT {{ key.ck_done_span }} CHECK (span BETWEEN 1 AND 1000)
) WITH (autovacuum_vacuum_cost_limit = 2000);

CREATE INDEX {{ key.ix_done_age }} ON {{ box.done }} (processed_at);

-- No visible row was processed before this time (microseconds since 1970), up to which everybody who acknowledges is over.
CREATE SEQUENCE {{ box._low_done }} AS bigint MINVALUE 0 START 0;
