-- Every box of this schema, so that a later deployment keeps those that were added by name.
CREATE TABLE {{ db._box }} (
    name varchar(30) COLLATE Latin1_General_BIN2 NOT NULL,
    kind varchar(10) COLLATE Latin1_General_BIN2 NOT NULL,
    created_at datetime2(6) NOT NULL CONSTRAINT {{ key.df_box_created_at }} DEFAULT SYSUTCDATETIME(),
    CONSTRAINT {{ key.pk_box }} PRIMARY KEY (name),
    CONSTRAINT {{ key.ck_box_kind }} CHECK (kind IN ('outbox', 'inbox'))
);
