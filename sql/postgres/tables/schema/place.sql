-- Which boxes have been numbered, and with what: all with the same, the deployment's place, and never again.
CREATE TABLE {{ db._place }} (
    box_name text COLLATE "C" NOT NULL,
    place smallint NOT NULL,
    given_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT {{ key.pk_place }} PRIMARY KEY (box_name),
    CONSTRAINT {{ key.ck_place_place }} CHECK (place BETWEEN 0 AND 127)
);
