-- How many done and dead messages each topic has, without counting them: whoever moves some appends how many came (or
-- went, below 0), a tick adds many rows up into one a topic, which it appends as well. So nobody waits for a topic's row.
-- dead is null where none came or went, which takes no room: ack writes most of the rows.
CREATE TABLE {{ box.tally }} (
    no bigint NOT NULL,
    topic text COLLATE "C" NOT NULL,
    done bigint NOT NULL,
    dead bigint,
    CONSTRAINT {{ key.pk_tally }} PRIMARY KEY (no)
);

-- No visible row of the tally has a number below this one.
CREATE SEQUENCE {{ box._low_tally }} AS bigint MINVALUE 0 START 0;
