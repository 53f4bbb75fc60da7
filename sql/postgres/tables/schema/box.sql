-- Every box of this schema, so that a later deployment keeps those that were added by name.
CREATE TABLE {{ db._box }} (
    name text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT {{ key.pk_box }} PRIMARY KEY (name),
    CONSTRAINT {{ key.ck_box_kind }} CHECK (kind IN ('outbox', 'inbox'))
);
