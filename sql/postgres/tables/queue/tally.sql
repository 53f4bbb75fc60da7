-- How many done messages each topic has, without counting them: ack appends what it moved, a tick folds the
-- appended rows into one row a topic.
CREATE TABLE {{ box.tally }} (
    no bigint NOT NULL,
    topic text COLLATE "C" NOT NULL,
    done bigint NOT NULL,
    CONSTRAINT {{ key.pk_tally }} PRIMARY KEY (no)
);

CREATE TABLE {{ box.tally_total }} (
    topic text COLLATE "C" NOT NULL,
    done bigint NOT NULL,
    CONSTRAINT {{ key.pk_tally_total }} PRIMARY KEY (topic)
);

-- No visible row of the tally has a number below this one.
CREATE SEQUENCE {{ box._low_tally }} AS bigint MINVALUE 0 START 0;
