{% import "macros/tables.sql" as tables with context %}
-- The log of what may be claimed: inserted at the tail of a lane, deleted at its head, never updated.
-- lane is the negated priority, so ascending order is claim order; lane 0 is the log that nearly everything is in.
-- A row stands for a whole FIFO group (group_key) or for one message, whose id is the ticket itself while it is
-- fresh, and stands in id once it came back under a new ticket.
--
-- Key form: a column named …_key holds a text with a full stop behind it. T-SQL compares as if padded with blanks,
-- under binary collations too, so that 'a' equals 'a '; with an end mark, plain comparisons, indexes, unique
-- constraints and GROUP BY tell them apart. LEFT(topic_key, LEN(topic_key) - 1) is the text again.
CREATE TABLE {{ box.ready }} (
    lane int NOT NULL,
    ticket bigint NOT NULL,
    id bigint,
    expires_at datetime2(6),
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{ key.pk_ready }} PRIMARY KEY CLUSTERED (lane, ticket),
    CONSTRAINT {{ key.ck_ready_one_of }} CHECK (id IS NULL OR group_key IS NULL)
);
{{ tables.hot(box.ready, key.pk_ready) }}

-- A claim limited to topics reads each topic's own order, however long the head of other topics is.
CREATE INDEX {{ key.ix_ready_topic }} ON {{ box.ready }} (topic_key, lane, ticket);
-- Where a message stands that came back with a new ticket; a fresh one is found by its id.
CREATE INDEX {{ key.ix_ready_returned }} ON {{ box.ready }} (id) WHERE id IS NOT NULL;
-- The tickets of a group that somebody holds are too many, and are swept out together.
CREATE INDEX {{ key.ix_ready_group }} ON {{ box.ready }} (group_key) WHERE group_key IS NOT NULL;
