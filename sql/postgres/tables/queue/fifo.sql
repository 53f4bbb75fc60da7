-- FIFO groups. A member is a message that waits; the one with the lowest id is the head. A group row exists
-- from the group's first claim until a settlement finds it empty, and says: a ticket is out, or members are
-- leased. Producers that see the row (and hold it by a key share lock) need not put out a ticket.
CREATE TABLE {{ box.group }} (
    group_id text COLLATE "C" NOT NULL,
    CONSTRAINT {{ key.pk_group }} PRIMARY KEY (group_id)
);

CREATE TABLE {{ box.group_member }} (
    group_id text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    CONSTRAINT {{ key.pk_group_member }} PRIMARY KEY (group_id, id)
);
