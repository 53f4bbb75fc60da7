{% import "macros/tables.sql" as tables with context %}
-- Messages given up: failed for good, expired before anyone could take them, or cancelled.
-- An inbox message that was never enqueued can be marked dead and has no topic.
CREATE TABLE {{ box.dead }} (
    id bigint NOT NULL,
    died_at datetime2(6) NOT NULL,
    expired bit NOT NULL,
    cancelled bit NOT NULL,
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{ key.pk_dead }} PRIMARY KEY CLUSTERED (id),
    CONSTRAINT {{ key.ck_dead_one_of }} CHECK (expired = 0 OR cancelled = 0)
);
{{ tables.hot(box.dead, key.pk_dead) }}

CREATE INDEX {{ key.ix_dead_topic }} ON {{ box.dead }} (topic_key, id);
CREATE INDEX {{ key.ix_dead_age }} ON {{ box.dead }} (died_at);
