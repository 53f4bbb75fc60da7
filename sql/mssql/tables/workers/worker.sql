-- Who works here: each worker says so at its start and then every so often. Rows of those that ended without saying so
-- are removed by a cleanup. Boxes and topics are JSON arrays.
CREATE TABLE {{ db.worker }} (
    owner_token uniqueidentifier NOT NULL,
    started_at datetime2(6) NOT NULL,
    seen_at datetime2(6) NOT NULL,
    boxes nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topics nvarchar(max) COLLATE Latin1_General_100_BIN2,
    name nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    host nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    pid bigint NOT NULL,
    version nvarchar(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    threads int NOT NULL,
    CONSTRAINT {{ key.pk_worker }} PRIMARY KEY CLUSTERED (owner_token)
);

CREATE INDEX {{ key.ix_worker_seen }} ON {{ db.worker }} (seen_at);
