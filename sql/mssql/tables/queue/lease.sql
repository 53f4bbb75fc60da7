{% import "macros/tables.sql" as tables with context %}
-- Who works on what, until when. Inserted by claim; deleted by ack, abandon, release, fail and reap.
CREATE TABLE {{ box.lease }} (
    id bigint NOT NULL,
    owner_token uniqueidentifier NOT NULL,
    locked_until datetime2(6) NOT NULL,
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{ key.pk_lease }} PRIMARY KEY CLUSTERED (id)
);
{{ tables.hot(box.lease, key.pk_lease) }}

CREATE INDEX {{ key.ix_lease_expiry }} ON {{ box.lease }} (locked_until);
CREATE INDEX {{ key.ix_lease_group }} ON {{ box.lease }} (group_key) WHERE group_key IS NOT NULL;
