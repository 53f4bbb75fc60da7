-- Which boxes have been numbered, and with what: all with the same, the deployment's place, and never again.
CREATE TABLE {{ db._place }} (
    box_name varchar(30) COLLATE Latin1_General_BIN2 NOT NULL,
    place smallint NOT NULL,
    given_at datetime2(6) NOT NULL CONSTRAINT {{ key.df_place_given_at }} DEFAULT SYSUTCDATETIME(),
    CONSTRAINT {{ key.pk_place }} PRIMARY KEY (box_name),
    CONSTRAINT {{ key.ck_place_place }} CHECK (place BETWEEN 0 AND 127)
);
