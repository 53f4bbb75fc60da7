-- The steps of the joins: messages of the outbox. A step's state is told by where its message is, until that would no
-- longer tell it: then, and when a step is reported, counted says so. A step that is counted is never counted again.
CREATE TABLE {{ db.join_member }} (
    join_id uuid NOT NULL,
    message_id uuid NOT NULL,
    id bigint NOT NULL,
    counted text COLLATE "C",
    attached_at timestamptz NOT NULL,
    CONSTRAINT {{ key.pk_join_member }} PRIMARY KEY (join_id, message_id),
    CONSTRAINT {{ key.ck_join_member_counted }} CHECK (counted IN ('completed', 'failed'))
);

CREATE INDEX {{ key.ix_join_member_id }} ON {{ db.join_member }} (id);
