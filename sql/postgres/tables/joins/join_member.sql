-- The steps of the joins: messages of the outbox. A step's state is told by where its message is, until that would no
-- longer tell it: then, and when a step is reported, counted says so. A step that is counted is never counted again.
-- no counts the steps of a join from 1: so nobody has to change the join's row to count them, of which a transaction that
-- attaches thousands would leave as many versions to walk over.
CREATE TABLE {{ db.join_member }} (
    join_id uuid NOT NULL,
    message_id uuid NOT NULL,
    id bigint NOT NULL,
    no integer NOT NULL,
    counted text COLLATE "C",
    attached_at timestamptz NOT NULL,
    CONSTRAINT {{ key.pk_join_member }} PRIMARY KEY (join_id, message_id),
    CONSTRAINT {{ key.uq_join_member_no }} UNIQUE (join_id, no),
    CONSTRAINT {{ key.ck_join_member_no }} CHECK (no >= 1),
    CONSTRAINT {{ key.ck_join_member_counted }} CHECK (counted IN ('completed', 'failed'))
);

CREATE INDEX {{ key.ix_join_member_id }} ON {{ db.join_member }} (id);
