-- The log of counted steps: whoever settles steps appends one row a join, and never waits for the join itself.
-- A fold adds rows to the join's own counters once there are many.
CREATE TABLE {{ db.join_tally }} (
    join_id uuid NOT NULL,
    no bigint GENERATED ALWAYS AS IDENTITY,
    completed integer NOT NULL,
    failed integer NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT {{ key.pk_join_tally }} PRIMARY KEY (join_id, no)
);
