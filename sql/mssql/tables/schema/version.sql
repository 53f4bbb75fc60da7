-- The versions of the tables that were applied; the highest is the schema's version.
CREATE TABLE {{ db._version }} (
    version int NOT NULL,
    applied_at datetime2(6) NOT NULL CONSTRAINT {{ key.df_version_applied_at }} DEFAULT SYSUTCDATETIME(),
    CONSTRAINT {{ key.pk_version }} PRIMARY KEY (version),
    CONSTRAINT {{ key.ck_version_version }} CHECK (version >= 1)
);
