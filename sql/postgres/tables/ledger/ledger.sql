-- What became of each key. A key that was released, or whose lease ran out, may be acquired again.
CREATE TABLE {{ db.ledger }} (
    key text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    lease_id uuid,
    owner text,
    lease_until timestamptz,
    attempts integer NOT NULL,
    handler text,
    first_seen_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    processed_at timestamptz,
    CONSTRAINT {{ key.pk_ledger }} PRIMARY KEY (key),
    CONSTRAINT {{ key.ck_ledger_state }} CHECK (state IN ('Unknown', 'Acquired', 'Processed')),
    CONSTRAINT {{ key.ck_ledger_lease }} CHECK ((state = 'Acquired') = (lease_id IS NOT NULL)),
    CONSTRAINT {{ key.ck_ledger_attempts }} CHECK (attempts >= 0)
);

-- What a cleanup may ever remove: not the keys acquired without expiry, however many there are.
CREATE INDEX {{ key.ix_ledger_age }} ON {{ db.ledger }} (last_seen_at)
WHERE state <> 'Acquired' OR lease_until IS NOT NULL;
