{% import "macros/tables.sql" as tables with context %}
-- Messages given up: failed for good, or expired before anyone could take them.
-- An inbox message that was never enqueued can be marked dead and has no topic.
CREATE TABLE {{ box.dead }} (
    id bigint NOT NULL,
    died_at datetime2(6) NOT NULL,
    expired bit NOT NULL,
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{ key.pk_dead }} PRIMARY KEY CLUSTERED (id)
);
{{ tables.hot(box.dead, key.pk_dead) }}

CREATE INDEX {{ key.ix_dead_topic }} ON {{ box.dead }} (topic_key, id);
CREATE INDEX {{ key.ix_dead_age }} ON {{ box.dead }} (died_at);
