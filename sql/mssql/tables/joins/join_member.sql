-- The steps of the joins: messages of the outbox. A step's state is told by where its message is, until that would no
-- longer tell it: then, and when a step is reported, counted says so. A step that is counted is never counted again.
CREATE TABLE {{ db.join_member }} (
    join_id uniqueidentifier NOT NULL,
    message_id uniqueidentifier NOT NULL,
    id bigint NOT NULL,
    counted nvarchar(10) COLLATE Latin1_General_100_BIN2,
    attached_at datetime2(6) NOT NULL,
    CONSTRAINT {{ key.pk_join_member }} PRIMARY KEY CLUSTERED (join_id, message_id),
    CONSTRAINT {{ key.ck_join_member_counted }} CHECK (counted IN (N'completed', N'failed'))
);
ALTER TABLE {{ db.join_member }} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{ key.ix_join_member_id }} ON {{ db.join_member }} (id);
