-- FIFO groups. A member is a message that waits; the one with the lowest id is the head.
-- There is no row for a group itself: its lock is an application lock on its name, held to the end of the
-- transaction (on Babelfish PostgreSQL's advisory lock, for a failed sp_getapplock leaves an error behind there, and
-- the fifth brings the server down). Whoever inserts or deletes a lease of the group, or
-- deletes a member of it, holds that lock; a producer adds a member without it, together with a ticket of its own.
-- So a group that has members and no lease always has a ticket; one too many is dropped by the claim that meets it.
CREATE TABLE {{ box.group_member }} (
    group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    id bigint NOT NULL,
    CONSTRAINT {{ key.pk_group_member }} PRIMARY KEY CLUSTERED (group_key, id)
);
ALTER TABLE {{ box.group_member }} SET (LOCK_ESCALATION = DISABLE);

-- For lists, which go by id.
CREATE INDEX {{ key.ix_group_member_id }} ON {{ box.group_member }} (id);
