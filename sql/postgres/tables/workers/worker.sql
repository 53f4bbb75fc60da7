-- Who works here: each worker says so at its start and then every so often. Rows of those that ended without saying so
-- are removed by a cleanup.
CREATE TABLE {{ db.worker }} (
    owner_token uuid NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    boxes text[] COLLATE "C" NOT NULL,
    topics text[] COLLATE "C",
    name text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL,
    pid bigint NOT NULL,
    version text COLLATE "C" NOT NULL,
    threads integer NOT NULL,
    CONSTRAINT {{ key.pk_worker }} PRIMARY KEY (owner_token)
) WITH (fillfactor = 50);

CREATE INDEX {{ key.ix_worker_seen }} ON {{ db.worker }} (seen_at);
