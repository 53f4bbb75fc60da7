-- Fan-ins: how many steps are awaited (null as long as the join is open: until join_wait nobody knows), and what happens once all of them are over. completed_steps and failed_steps
-- are the folded part of the log in join_tally: the true counts are these plus that.
CREATE TABLE {{ db.join }} (
    join_id uuid NOT NULL,
    no bigint GENERATED ALWAYS AS IDENTITY,
    tenant_id text COLLATE "C" NOT NULL,
    expected_steps integer,
    completed_steps integer NOT NULL,
    failed_steps integer NOT NULL,
    status text COLLATE "C" NOT NULL,
    metadata text,
    created_at timestamptz NOT NULL,
    last_updated_at timestamptz NOT NULL,
    finished_at timestamptz,
    wait_id bigint,
    wait_message_id uuid,
    fail_if_any_step_failed boolean NOT NULL,
    on_complete_topic text COLLATE "C",
    on_complete_payload text,
    on_fail_topic text COLLATE "C",
    on_fail_payload text,
    enqueued_message_id uuid,
    CONSTRAINT {{ key.pk_join }} PRIMARY KEY (join_id),
    CONSTRAINT {{ key.uq_join_no }} UNIQUE (no),
    CONSTRAINT {{ key.ck_join_expected_steps }} CHECK (expected_steps >= 0),
    CONSTRAINT {{ key.ck_join_counted_steps }} CHECK (
        completed_steps >= 0 AND failed_steps >= 0 AND completed_steps + failed_steps <= expected_steps
    ),
    CONSTRAINT {{ key.ck_join_status }} CHECK (status IN ('Pending', 'Completed', 'Failed', 'Cancelled'))
);

CREATE INDEX {{ key.ix_join_tenant }} ON {{ db.join }} (tenant_id, no);
-- Those that are stuck are few among many that are over.
CREATE INDEX {{ key.ix_join_status }} ON {{ db.join }} (status, no);
CREATE INDEX {{ key.ix_join_age }} ON {{ db.join }} (finished_at) WHERE finished_at IS NOT NULL;
