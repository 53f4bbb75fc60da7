-- Messages that a newer one with the same key may still replace. An enqueue takes all older rows of its key away,
-- whatever became of their messages, so a key's rows are looked at once each.
CREATE TABLE {{ box.collapse }} (
    collapse_key text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    CONSTRAINT {{ key.pk_collapse }} PRIMARY KEY (collapse_key, id)
);
