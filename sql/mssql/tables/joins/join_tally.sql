-- The log of counted steps: whoever settles steps appends one row a join, and never waits for the join itself.
-- A fold adds rows to the join's own counters once there are many.
CREATE TABLE {{ db.join_tally }} (
    join_id uniqueidentifier NOT NULL,
    no bigint IDENTITY(1, 1) NOT NULL,
    completed int NOT NULL,
    failed int NOT NULL,
    created_at datetime2(6) NOT NULL,
    CONSTRAINT {{ key.pk_join_tally }} PRIMARY KEY CLUSTERED (join_id, no)
);
ALTER TABLE {{ db.join_tally }} SET (LOCK_ESCALATION = DISABLE);
