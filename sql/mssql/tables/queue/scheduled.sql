{% import "macros/tables.sql" as tables with context %}
-- What is not due yet, a message (id) or a group waiting for its head (group_key). no is the message's or the
-- head's id, or a number of its own.
{% if box_name == "outbox" %}
-- A row with a join_id is a probe: the next claim looks whether that join is complete by now.
{% endif %}
CREATE TABLE {{ box.scheduled }} (
    due_at datetime2(6) NOT NULL,
    no bigint NOT NULL,
    id bigint,
    expires_at datetime2(6),
    lane int NOT NULL,
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
{% if box_name == "outbox" %}
    join_id uniqueidentifier,
{% endif %}
    CONSTRAINT {{ key.pk_scheduled }} PRIMARY KEY CLUSTERED (due_at, no),
    CONSTRAINT {{ key.ck_scheduled_one_of }} CHECK (
{% if box_name == "outbox" %}
        (id IS NOT NULL AND group_key IS NULL AND join_id IS NULL)
        OR (id IS NULL AND group_key IS NOT NULL AND join_id IS NULL)
        OR (id IS NULL AND group_key IS NULL AND join_id IS NOT NULL)
{% else %}
        (id IS NULL AND group_key IS NOT NULL) OR (id IS NOT NULL AND group_key IS NULL)
{% endif %}
    )
);
{{ tables.hot(box.scheduled, key.pk_scheduled) }}

-- For lists, which go by id.
CREATE INDEX {{ key.ix_scheduled_id }} ON {{ box.scheduled }} (id) WHERE id IS NOT NULL;
