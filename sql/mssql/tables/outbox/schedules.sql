-- What is to be enqueued again and again. next_at is the planned time that is fired next; null until somebody works it out.
-- The name is kept in key form, the text with a full stop behind it.
CREATE TABLE {{ box.schedules }} (
    schedule_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    payload nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    cron nvarchar(255) COLLATE Latin1_General_100_BIN2,
    every_seconds int,
    timezone nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    next_at datetime2(6),
    last_fired_at datetime2(6),
    catch_up int NOT NULL,
    enabled bit NOT NULL,
    group_id nvarchar(255) COLLATE Latin1_General_100_BIN2,
    priority smallint NOT NULL,
    headers nvarchar(max) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{ key.pk_schedules }} PRIMARY KEY CLUSTERED (schedule_key),
    CONSTRAINT {{ key.ck_schedules_one_of }} CHECK (
        (cron IS NULL AND every_seconds IS NOT NULL) OR (cron IS NOT NULL AND every_seconds IS NULL)
    ),
    CONSTRAINT {{ key.ck_schedules_every }} CHECK (every_seconds IS NULL OR (every_seconds >= 1 AND next_at IS NOT NULL)),
    CONSTRAINT {{ key.ck_schedules_catch_up }} CHECK (catch_up >= 0),
    CONSTRAINT {{ key.ck_schedules_headers }} CHECK (ISJSON(headers) = 1)
);

CREATE INDEX {{ key.ix_schedules_next }} ON {{ box.schedules }} (next_at, schedule_key) WHERE enabled = 1;
