-- Every rendered file that this schema was deployed from: what it said, and what the catalog then held.
-- A text_hash other than the release's is work to do; a catalog_hash other than the catalog's is a routine
-- that somebody changed by hand.
CREATE TABLE {{ db._unit }} (
    id varchar(200) COLLATE Latin1_General_BIN2 NOT NULL,
    position int NOT NULL,
    object_name varchar(128) COLLATE Latin1_General_BIN2 NULL,
    text_hash varchar(64) COLLATE Latin1_General_BIN2 NOT NULL,
    catalog_hash varbinary(32) NULL,
    applied_at datetime2(6) NOT NULL CONSTRAINT {{ key.df_unit_applied_at }} DEFAULT SYSUTCDATETIME(),
    CONSTRAINT {{ key.pk_unit }} PRIMARY KEY (id)
);
