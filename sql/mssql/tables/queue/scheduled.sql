-- What is not due yet, a message (id) or a group waiting for its head (group_key). no is the message's or the
-- head's id, or a number of its own.
CREATE TABLE {{ box.scheduled }} (
    due_at datetime2(6) NOT NULL,
    no bigint NOT NULL,
    id bigint,
    expires_at datetime2(6),
    lane int NOT NULL,
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{ key.pk_scheduled }} PRIMARY KEY CLUSTERED (due_at, no),
    CONSTRAINT {{ key.ck_scheduled_one_of }} CHECK (
        (id IS NULL AND group_key IS NOT NULL) OR (id IS NOT NULL AND group_key IS NULL)
    )
);
ALTER TABLE {{ box.scheduled }} SET (LOCK_ESCALATION = DISABLE);
