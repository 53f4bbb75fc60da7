-- Messages given up: failed for good, expired before anyone could take them, or cancelled.
-- An inbox message that was never enqueued can be marked dead and has no topic.
CREATE TABLE {{ box.dead }} (
    id bigint NOT NULL,
    died_at timestamptz NOT NULL,
    expired boolean NOT NULL,
    cancelled boolean NOT NULL,
    topic text COLLATE "C",
    CONSTRAINT {{ key.pk_dead }} PRIMARY KEY (id),
    CONSTRAINT {{ key.ck_dead_one_of }} CHECK (NOT (expired AND cancelled))
);

CREATE INDEX {{ key.ix_dead_topic }} ON {{ box.dead }} (topic, id);
CREATE INDEX {{ key.ix_dead_age }} ON {{ box.dead }} (died_at);
