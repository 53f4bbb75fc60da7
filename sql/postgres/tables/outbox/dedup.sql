-- Deduplication keys of the window, each with the message that first carried it.
CREATE TABLE {{ box.dedup }} (
    dedup_key text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    message_id uuid NOT NULL,
    seen_at timestamptz NOT NULL,
    CONSTRAINT {{ key.pk_dedup }} PRIMARY KEY (dedup_key)
);

CREATE INDEX {{ key.ix_dedup_age }} ON {{ box.dedup }} (seen_at);
