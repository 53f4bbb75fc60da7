-- What is to be enqueued again and again. next_at is the planned time that is fired next; null until somebody works it out.
CREATE TABLE {{ box.schedules }} (
    name text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    payload text NOT NULL,
    cron text COLLATE "C",
    every_seconds integer,
    timezone text COLLATE "C" NOT NULL,
    next_at timestamptz,
    last_fired_at timestamptz,
    catch_up integer NOT NULL,
    enabled boolean NOT NULL,
    group_id text COLLATE "C",
    priority smallint NOT NULL,
    headers jsonb,
    CONSTRAINT {{ key.pk_schedules }} PRIMARY KEY (name),
    CONSTRAINT {{ key.ck_schedules_one_of }} CHECK (num_nonnulls(cron, every_seconds) = 1),
    CONSTRAINT {{ key.ck_schedules_every }} CHECK (every_seconds IS NULL OR (every_seconds >= 1 AND next_at IS NOT NULL)),
    CONSTRAINT {{ key.ck_schedules_catch_up }} CHECK (catch_up >= 0)
);

CREATE INDEX {{ key.ix_schedules_next }} ON {{ box.schedules }} (next_at, name) WHERE enabled;
