-- Who works on what, until when. Inserted by claim; deleted by ack, abandon, release, fail and reap.
CREATE TABLE {{ box.lease }} (
    id bigint NOT NULL,
    owner_token uuid NOT NULL,
    locked_until timestamptz NOT NULL,
    topic text COLLATE "C" NOT NULL,
    group_id text COLLATE "C",
    CONSTRAINT {{ key.pk_lease }} PRIMARY KEY (id)
) WITH (autovacuum_vacuum_cost_limit = 2000);

CREATE INDEX {{ key.ix_lease_expiry }} ON {{ box.lease }} (locked_until);
CREATE INDEX {{ key.ix_lease_group }} ON {{ box.lease }} (group_id) WHERE group_id IS NOT NULL;

-- No visible lease ends before this time (microseconds since 1970).
CREATE SEQUENCE {{ box._low_lease }} AS bigint MINVALUE 0 START 0;
