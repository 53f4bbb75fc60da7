{% import "macros/tables.sql" as tables with context %}
-- What became of each key. A key that was released, or whose lease ran out, may be acquired again.
-- The key is kept in key form, the text with a full stop behind it, and too wide for a clustered index.
CREATE TABLE {{ db.ledger }} (
    no bigint IDENTITY(1, 1) NOT NULL,
    ledger_key nvarchar(513) COLLATE Latin1_General_100_BIN2 NOT NULL,
    state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    lease_id uniqueidentifier,
    owner nvarchar(255) COLLATE Latin1_General_100_BIN2,
    lease_until datetime2(6),
    attempts int NOT NULL,
    handler nvarchar(255) COLLATE Latin1_General_100_BIN2,
    first_seen_at datetime2(6) NOT NULL,
    last_seen_at datetime2(6) NOT NULL,
    processed_at datetime2(6),
    CONSTRAINT {{ key.pk_ledger }} PRIMARY KEY NONCLUSTERED (ledger_key),
    CONSTRAINT {{ key.uq_ledger_no }} UNIQUE CLUSTERED (no),
    CONSTRAINT {{ key.ck_ledger_state }} CHECK (state IN (N'Unknown', N'Acquired', N'Processed')),
    CONSTRAINT {{ key.ck_ledger_lease }} CHECK (
        (state = N'Acquired' AND lease_id IS NOT NULL) OR (state <> N'Acquired' AND lease_id IS NULL)
    ),
    CONSTRAINT {{ key.ck_ledger_processed }} CHECK (
        (state = N'Processed' AND processed_at IS NOT NULL) OR (state <> N'Processed' AND processed_at IS NULL)
    ),
    CONSTRAINT {{ key.ck_ledger_attempts }} CHECK (attempts >= 0)
);
{{ tables.hot(db.ledger, key.uq_ledger_no) }}

-- What a cleanup may ever remove, and not the keys acquired without expiry, however many there are: processed,
-- leased for a time, released.
CREATE INDEX {{ key.ix_ledger_processed }} ON {{ db.ledger }} (processed_at) WHERE processed_at IS NOT NULL;
CREATE INDEX {{ key.ix_ledger_expiry }} ON {{ db.ledger }} (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX {{ key.ix_ledger_released }} ON {{ db.ledger }} (last_seen_at)
WHERE lease_id IS NULL AND processed_at IS NULL;
