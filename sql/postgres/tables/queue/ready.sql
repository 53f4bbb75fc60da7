-- The log of what may be claimed: inserted at the tail of a lane, deleted at its head, never updated.
-- lane is the negated priority, so ascending order is claim order; lane 0 is the log that nearly everything is in.
-- A row stands for a message (id), for a run of span messages with consecutive ids (id is the first, and the ticket;
-- lane 0, one topic, no expiry, no group), or for a whole FIFO group (group_id), which has one ticket however long it is.
-- That it is one of the two, and span at least 1, is no check: PostgreSQL reads and plans a check's text anew for each
-- statement, which was 4.9 of the 72 microseconds of an enqueue. The tests ask the tables instead.
CREATE TABLE {{ box.ready }} (
    lane integer NOT NULL,
    span integer NOT NULL DEFAULT 1,
    ticket bigint NOT NULL,
    id bigint,
    expires_at timestamptz,
    topic text COLLATE "C" NOT NULL,
    group_id text COLLATE "C",
    CONSTRAINT {{ key.pk_ready }} PRIMARY KEY (lane, ticket)
) WITH (autovacuum_vacuum_cost_limit = 2000);

-- A claim limited to topics reads each topic's own order, however long the head of other topics is.
CREATE INDEX {{ key.ix_ready_topic }} ON {{ box.ready }} (topic, lane, ticket);
-- Where a message stands that came back with a new ticket; a fresh one is found by its id.
CREATE INDEX {{ key.ix_ready_returned }} ON {{ box.ready }} (id) WHERE ticket <> id;

-- The lanes beside lane 0 that were ever used; a few rows, some of them twice: a unique key would make producers wait.
CREATE TABLE {{ box.lane }} (
    lane integer NOT NULL,
    CONSTRAINT {{ key.ck_lane_lane }} CHECK (lane <> 0)
);

-- The low marks: claims scan from here, past the dead rows that a held snapshot keeps from being vacuumed.
-- Sequences, because setval updates in place, outside transactions, and leaves no dead rows itself.
-- Of lane 0, of all lanes above it, and of all below it.
CREATE SEQUENCE {{ box._low_ticket }} AS bigint MINVALUE 0 START 0;
CREATE SEQUENCE {{ box._low_above }} AS bigint MINVALUE 0 START 0;
CREATE SEQUENCE {{ box._low_below }} AS bigint MINVALUE 0 START 0;
-- What is below this one in lane 0 is sure to be gone; from here to the low mark somebody may still bring a row late.
CREATE SEQUENCE {{ box._low_sure }} AS bigint MINVALUE 0 START 0;
-- Whom the mark of lane 0 did not wait for (transactions before this xid), how far a round through what it left behind has
-- come, and up to where all is sure once that round is over.
CREATE SEQUENCE {{ box._late_xid }} AS bigint MINVALUE 0 START 0;
CREATE SEQUENCE {{ box._late_at }} AS bigint MINVALUE 0 START 0;
CREATE SEQUENCE {{ box._late_to }} AS bigint MINVALUE 0 START 0;
-- Of lane 0 without the paused topics: the ticket times 32768, plus 15 bits that say which topics were paused.
CREATE SEQUENCE {{ box._low_open }} AS bigint MINVALUE 0 START 0;
