-- The versions of the tables that were applied; the highest is the schema's version.
CREATE TABLE {{ db._version }} (
    version integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT {{ key.pk_version }} PRIMARY KEY (version),
    CONSTRAINT {{ key.ck_version_version }} CHECK (version >= 1)
);
