-- FIFO groups. A member is a message that waits; the one with the lowest id is the head. A group's row says nothing, it
-- is there to be locked: by producers that add a member (key share), by the worker that holds the group, by whoever
-- has to know that nobody is just adding one (update). It is entered by the group's first claim and removed by a cleanup.
CREATE TABLE {{ box.group }} (
    group_id text COLLATE "C" NOT NULL,
    CONSTRAINT {{ key.pk_group }} PRIMARY KEY (group_id)
);

CREATE TABLE {{ box.group_member }} (
    group_id text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    CONSTRAINT {{ key.pk_group_member }} PRIMARY KEY (group_id, id)
);

-- For the low mark.
-- For ticks, which say id > 0: whoever looks for a group's members must not read other groups' by it, as a plan that was
-- made while there were few might.
CREATE INDEX {{ key.ix_group_member_id }} ON {{ box.group_member }} (id) WHERE id > 0;

-- No visible member, and no visible lease of a grouped message, has an id below this one.
CREATE SEQUENCE {{ box._low_grouped }} AS bigint MINVALUE 0 START 0;
-- Set once the box has had a group: until then nobody looks for groups.
CREATE SEQUENCE {{ box._grouped }} AS bigint MINVALUE 0 START 0;
