-- What is not due yet, a message (id) or a group waiting for its head (group_id). no is the message's id, or a number of its own.
{% if box_name == "outbox" %}
-- A row of a join is a probe: whoever finds it due looks whether that join is complete. probe_xid is the transaction
-- that left it.
{% endif %}
CREATE TABLE {{ box.scheduled }} (
    due_at timestamptz NOT NULL,
    no bigint NOT NULL,
    id bigint,
    expires_at timestamptz,
    lane integer NOT NULL,
    topic text COLLATE "C" NOT NULL,
    group_id text COLLATE "C",
{% if box_name == "outbox" %}
    join_id uuid,
    probe_xid xid8,
{% endif %}
    CONSTRAINT {{ key.pk_scheduled }} PRIMARY KEY (due_at, no),
{% if box_name == "outbox" %}
    CONSTRAINT {{ key.ck_scheduled_one_of }} CHECK (num_nonnulls(id, group_id, join_id) = 1)
{% else %}
    CONSTRAINT {{ key.ck_scheduled_one_of }} CHECK (num_nonnulls(id, group_id) = 1)
{% endif %}
);

-- For lists, which go by id.
CREATE INDEX {{ key.ix_scheduled_id }} ON {{ box.scheduled }} (id) WHERE id IS NOT NULL;

-- Nothing visible is due before this time (microseconds since 1970).
CREATE SEQUENCE {{ box._low_due }} AS bigint MINVALUE 0 START 0;
