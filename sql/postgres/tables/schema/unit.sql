-- Every rendered file that this schema was deployed from: what it said, and what the catalog then held.
-- A text_hash other than the release's is work to do; a catalog_hash other than the catalog's is a routine
-- that somebody changed by hand. objects are the routines, with the types of their arguments, and views that the
-- file created: whatever else has their names is somebody else's.
CREATE TABLE {{ db._unit }} (
    id text COLLATE "C" NOT NULL,
    position integer NOT NULL,
    object_name text COLLATE "C",
    text_hash text COLLATE "C" NOT NULL,
    catalog_hash bytea,
    objects text[] COLLATE "C" NOT NULL DEFAULT '{}',
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT {{ key.pk_unit }} PRIMARY KEY (id)
);
