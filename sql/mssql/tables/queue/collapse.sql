-- Messages that a newer one with the same key may still replace. An enqueue takes all older rows of its key away,
-- whatever became of their messages, so a key's rows are looked at once each.
CREATE TABLE {{ box.collapse }} (
    collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    id bigint NOT NULL,
    CONSTRAINT {{ key.pk_collapse }} PRIMARY KEY CLUSTERED (collapse_key, id)
);
ALTER TABLE {{ box.collapse }} SET (LOCK_ESCALATION = DISABLE);
