-- What was sent. Written once; only a retry's bookkeeping (attempt, due_at, last_error) ever changes it.
-- Where a message stands is told by the table its id is in: ready, scheduled, group_member, lease, done or dead.
-- A message_id that was drawn here ends with the message's id, by which it is found; only given ones need an index.
-- attempt begins at 0 and only ever goes up by one or back to 0; a check would cost 2 of an enqueue's 72 microseconds.
-- At the default limit vacuum lags behind a busy box's cleanup, and the table grows without end.
CREATE TABLE {{ box.message }} (
    id bigint NOT NULL,
    message_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    due_at timestamptz,
    expires_at timestamptz,
    attempt integer NOT NULL,
    priority smallint NOT NULL,
    topic text COLLATE "C" NOT NULL,
    payload text NOT NULL,
    correlation_id text COLLATE "C",
    group_id text COLLATE "C",
    dedup_key text COLLATE "C",
    collapse_key text COLLATE "C",
    headers jsonb,
    last_error text,
    is_given boolean,
    CONSTRAINT {{ key.pk_message }} PRIMARY KEY (id)
) WITH (autovacuum_vacuum_cost_limit = 2000);

CREATE UNIQUE INDEX {{ key.uq_message_message_id }} ON {{ box.message }} (message_id) WHERE is_given;
