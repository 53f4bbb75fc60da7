{% import "macros/tables.sql" as tables with context %}
-- Fan-ins: how many steps are awaited (null as long as the join is open: until join_wait nobody knows), and what happens once all of them are over. completed_steps and failed_steps
-- are the folded part of the log in join_tally: the true counts are these plus that.
-- A join is locked by an application lock on its id, held to the end of the transaction (on Babelfish PostgreSQL's
-- advisory lock, as for groups): claims try it and pass the join over, which a lock on the row allows in one engine only.
CREATE TABLE {{ db.join }} (
    join_id uniqueidentifier NOT NULL,
    no bigint IDENTITY(1, 1) NOT NULL,
    tenant_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    expected_steps int,
    attached_steps int NOT NULL,
    completed_steps int NOT NULL,
    failed_steps int NOT NULL,
    status nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    metadata nvarchar(max) COLLATE Latin1_General_100_BIN2,
    created_at datetime2(6) NOT NULL,
    last_updated_at datetime2(6) NOT NULL,
    finished_at datetime2(6),
    wait_id bigint,
    wait_message_id uniqueidentifier,
    fail_if_any_step_failed bit NOT NULL,
    on_complete_topic nvarchar(255) COLLATE Latin1_General_100_BIN2,
    on_complete_payload nvarchar(max) COLLATE Latin1_General_100_BIN2,
    on_fail_topic nvarchar(255) COLLATE Latin1_General_100_BIN2,
    on_fail_payload nvarchar(max) COLLATE Latin1_General_100_BIN2,
    enqueued_message_id uniqueidentifier,
    CONSTRAINT {{ key.pk_join }} PRIMARY KEY NONCLUSTERED (join_id),
    CONSTRAINT {{ key.uq_join_no }} UNIQUE CLUSTERED (no),
    CONSTRAINT {{ key.ck_join_expected_steps }} CHECK (expected_steps >= 0),
    CONSTRAINT {{ key.ck_join_attached_steps }} CHECK (attached_steps >= 0 AND attached_steps <= expected_steps),
    CONSTRAINT {{ key.ck_join_counted_steps }} CHECK (
        completed_steps >= 0 AND failed_steps >= 0 AND completed_steps + failed_steps <= expected_steps
    ),
    CONSTRAINT {{ key.ck_join_status }} CHECK (status IN (N'Pending', N'Completed', N'Failed', N'Cancelled'))
);
{{ tables.hot(db.join, key.uq_join_no) }}

CREATE INDEX {{ key.ix_join_tenant }} ON {{ db.join }} (tenant_key, no);
-- Those that are stuck are few among many that are over.
CREATE INDEX {{ key.ix_join_status }} ON {{ db.join }} (status, no);
CREATE INDEX {{ key.ix_join_age }} ON {{ db.join }} (finished_at) WHERE finished_at IS NOT NULL;
