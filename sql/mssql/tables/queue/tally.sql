{% import "macros/tables.sql" as tables with context %}
-- How many done and dead messages each topic has, without counting them: whoever moves some appends how many came (or
-- went, below 0), a tick folds the appended rows into one row a topic.
CREATE TABLE {{ box.tally }} (
    no bigint IDENTITY(1, 1) NOT NULL,
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    done bigint NOT NULL,
    dead bigint NOT NULL CONSTRAINT {{ key.df_tally_dead }} DEFAULT 0,
    CONSTRAINT {{ key.pk_tally }} PRIMARY KEY CLUSTERED (no)
);
{{ tables.hot(box.tally, key.pk_tally) }}

CREATE TABLE {{ box.tally_total }} (
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    done bigint NOT NULL,
    dead bigint NOT NULL,
    CONSTRAINT {{ key.pk_tally_total }} PRIMARY KEY CLUSTERED (topic_key)
);
