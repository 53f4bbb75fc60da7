-- Layout L without anything around it: message log, ready log, lease table, done log.
-- No topics, groups, priorities, expiry, delays, pausing, reaping, counters or deduplication, and no index but keys.
CREATE SCHEMA bare_log;

CREATE SEQUENCE bare_log.ids AS bigint;

CREATE TABLE bare_log.message (
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
    CONSTRAINT pk_message PRIMARY KEY (id)
);

CREATE TABLE bare_log.ready (
    ticket bigint NOT NULL,
    id bigint NOT NULL,
    CONSTRAINT pk_ready PRIMARY KEY (ticket)
);

CREATE TABLE bare_log.lease (
    id bigint NOT NULL,
    owner_token uuid NOT NULL,
    locked_until timestamptz NOT NULL,
    CONSTRAINT pk_lease PRIMARY KEY (id)
);

CREATE TABLE bare_log.done (
    id bigint NOT NULL,
    processed_at timestamptz NOT NULL,
    processed_by uuid,
    CONSTRAINT pk_done PRIMARY KEY (id)
);
