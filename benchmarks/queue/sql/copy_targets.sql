-- Targets of a bare COPY: the columns of a message, with its key alone, and with the unique message_id as well.
CREATE SCHEMA copied;

CREATE TABLE copied.key_only (
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
    CONSTRAINT pk_key_only PRIMARY KEY (id)
);

CREATE TABLE copied.two_keys (
    LIKE copied.key_only,
    CONSTRAINT pk_two_keys PRIMARY KEY (id),
    CONSTRAINT uq_two_keys_message_id UNIQUE (message_id)
);

-- The first id of each thousand; clients number the rest.
CREATE SEQUENCE copied.ids AS bigint INCREMENT 1000;
