-- What was received, once per (source, message_id). A message that was only seen, never enqueued, has no topic.
-- Where a message stands is told by the table its id is in: seen, ready, scheduled, group_member, lease, done or dead.
-- At the default limit vacuum lags behind a busy box's cleanup, and the table grows without end.
CREATE TABLE {{ box.message }} (
    id bigint NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    due_at timestamptz,
    expires_at timestamptz,
    attempt integer NOT NULL,
    priority smallint NOT NULL,
    source text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    topic text COLLATE "C",
    payload text,
    hash bytea,
    group_id text COLLATE "C",
    collapse_key text COLLATE "C",
    headers jsonb,
    last_error text,
    CONSTRAINT {{ key.pk_message }} PRIMARY KEY (id),
    CONSTRAINT {{ key.uq_message_key }} UNIQUE (source, message_id),
    CONSTRAINT {{ key.ck_message_attempt }} CHECK (attempt >= 0),
    CONSTRAINT {{ key.ck_message_enqueued }} CHECK ((topic IS NULL) = (payload IS NULL))
) WITH (autovacuum_vacuum_cost_limit = 2000);
