-- The queue that most people write: one table, a status column that claim and ack update, partial indexes.
-- The columns are those of a message, its lease and its end; the indexes serve what the box's tables serve.
CREATE SCHEMA status_column;

CREATE SEQUENCE status_column.ids AS bigint;

CREATE TABLE status_column.message (
    id bigint NOT NULL,
    message_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    due_at timestamptz,
    expires_at timestamptz,
    attempt integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL DEFAULT 0,
    status smallint NOT NULL DEFAULT 0,
    topic text COLLATE "C" NOT NULL,
    payload text NOT NULL,
    correlation_id text COLLATE "C",
    group_id text COLLATE "C",
    dedup_key text COLLATE "C",
    collapse_key text COLLATE "C",
    headers jsonb,
    last_error text,
    owner_token uuid,
    locked_until timestamptz,
    processed_at timestamptz,
    processed_by uuid,
    CONSTRAINT pk_message PRIMARY KEY (id),
    CONSTRAINT uq_message_message_id UNIQUE (message_id)
);

-- status 0: ready, 1: leased, 2: done
CREATE INDEX ix_message_ready ON status_column.message (priority DESC, id) WHERE status = 0;
CREATE INDEX ix_message_topic ON status_column.message (topic, priority DESC, id) WHERE status = 0;
CREATE INDEX ix_message_lease ON status_column.message (locked_until) WHERE status = 1;
CREATE INDEX ix_message_done ON status_column.message (processed_at) WHERE status = 2;
CREATE INDEX ix_message_group ON status_column.message (group_id, id) WHERE group_id IS NOT NULL;
CREATE INDEX ix_message_collapse ON status_column.message (collapse_key, id) WHERE collapse_key IS NOT NULL;
CREATE INDEX ix_message_dedup ON status_column.message (dedup_key) WHERE dedup_key IS NOT NULL;
