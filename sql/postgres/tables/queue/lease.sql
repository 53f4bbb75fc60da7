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
-- Whether a group is held; and the lowest id that any group has leased. Each says id in its own way, so that no other index
-- can stand in for it: in a plan that was made while there were few leases, all would be as good.
CREATE INDEX {{ key.ix_lease_group }} ON {{ box.lease }} (group_id, (id + 0)) WHERE group_id IS NOT NULL;
CREATE INDEX {{ key.ix_lease_grouped }} ON {{ box.lease }} ((id + 0)) WHERE group_id IS NOT NULL AND id > 0;

-- When somebody last looked for leases that have run out (microseconds since 1970); the next look begins two seconds before.
CREATE SEQUENCE {{ box._low_lease }} AS bigint MINVALUE 0 START 0;
-- When the first of the leases ran out that the last look has seen.
CREATE SEQUENCE {{ box._left_lease }} AS bigint MINVALUE 0 START 0;
