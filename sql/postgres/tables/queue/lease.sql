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
-- Whether a group is held; and the lowest id that any group has leased.
CREATE INDEX {{ key.ix_lease_group }} ON {{ box.lease }} (group_id, id) WHERE group_id IS NOT NULL;
CREATE INDEX {{ key.ix_lease_grouped }} ON {{ box.lease }} (id) WHERE group_id IS NOT NULL;

-- When somebody last looked for leases that have run out (microseconds since 1970); the next look begins two seconds before.
CREATE SEQUENCE {{ box._low_lease }} AS bigint MINVALUE 0 START 0;
-- When the first of the leases ran out that the last look has seen.
CREATE SEQUENCE {{ box._left_lease }} AS bigint MINVALUE 0 START 0;
