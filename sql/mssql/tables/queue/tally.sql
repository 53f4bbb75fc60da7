{% import "macros/tables.sql" as tables with context %}
-- How many done messages each topic has, without counting them: ack appends what it moved, a tick folds the
-- appended rows into one row a topic.
CREATE TABLE {{ box.tally }} (
    no bigint IDENTITY(1, 1) NOT NULL,
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    done bigint NOT NULL,
    CONSTRAINT {{ key.pk_tally }} PRIMARY KEY CLUSTERED (no)
);
{{ tables.hot(box.tally, key.pk_tally) }}

CREATE TABLE {{ box.tally_total }} (
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    done bigint NOT NULL,
    CONSTRAINT {{ key.pk_tally_total }} PRIMARY KEY CLUSTERED (topic_key)
);
