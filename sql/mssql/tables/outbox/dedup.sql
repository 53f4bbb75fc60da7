-- Deduplication keys of the window, each with the message that first carried it.
CREATE TABLE {{ box.dedup }} (
    dedup_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    id bigint NOT NULL,
    message_id uniqueidentifier NOT NULL,
    seen_at datetime2(6) NOT NULL,
    CONSTRAINT {{ key.pk_dedup }} PRIMARY KEY CLUSTERED (dedup_key)
);
ALTER TABLE {{ box.dedup }} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{ key.ix_dedup_age }} ON {{ box.dedup }} (seen_at);
