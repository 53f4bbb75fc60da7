-- How many done messages each topic has, without counting them: ack appends what it moved, a tick adds many rows up into
-- one a topic, which it appends as well. So nobody waits for a topic's row.
CREATE TABLE {{ box.tally }} (
    no bigint NOT NULL,
    topic text COLLATE "C" NOT NULL,
    done bigint NOT NULL,
    CONSTRAINT {{ key.pk_tally }} PRIMARY KEY (no)
);

-- No visible row of the tally has a number below this one.
CREATE SEQUENCE {{ box._low_tally }} AS bigint MINVALUE 0 START 0;
