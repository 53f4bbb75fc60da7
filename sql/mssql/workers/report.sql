{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- A worker says who it is: at its start, and then every so often, so that others see that it is still there.
-- owner_token: what it claims by; not the nil uuid
-- boxes: their names, 1 to 1000
-- topics: those that it takes, up to 10000; null for all
-- name: what it calls itself, 1 to 255 characters
-- host: 1 to 255 characters
-- pid: not below 0
-- version: 1 to 64 characters
-- threads: not below 1
-- returns: started_at, seen_at; by the server's clock
-- errors: PB001
-- locks: none
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.worker_report }}
    @owner_token uniqueidentifier,
    @boxes nvarchar(max),
    @topics nvarchar(max),
    @name nvarchar(max),
    @host nvarchar(max),
    @pid bigint,
    @version nvarchar(max),
    @threads int
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};

    IF @owner_token IS NULL OR @owner_token = '00000000-0000-0000-0000-000000000000'
    {{ arguments.reject("owner_token", "must not be null or the nil uuid") }}
    IF @boxes IS NULL OR {{ arguments.not_array("@boxes") }}
    {{ arguments.reject("boxes", "must be a JSON array") }}
    IF (SELECT COUNT(*) FROM OPENJSON(@boxes)) NOT BETWEEN 1 AND 1000
    {{ arguments.reject("boxes", "must have from 1 to 1000 names") }}
    IF {{ arguments.not_array("@topics") }}
    {{ arguments.reject("topics", "must be a JSON array") }}
    IF (SELECT COUNT(*) FROM OPENJSON(@topics)) > 10000
    {{ arguments.reject("topics", "must have at most 10000 topics") }}
    -- LEN passes over trailing blanks, so an end mark is put behind a text.
    IF @name IS NULL OR LEN((@name + N'.') COLLATE Latin1_General_100_BIN2) NOT BETWEEN 2 AND 256
    {{ arguments.reject("name", "must have from 1 to 255 characters") }}
    IF @host IS NULL OR LEN((@host + N'.') COLLATE Latin1_General_100_BIN2) NOT BETWEEN 2 AND 256
    {{ arguments.reject("host", "must have from 1 to 255 characters") }}
    IF @pid IS NULL OR @pid < 0
    {{ arguments.reject("pid", "must not be null or below 0") }}
    IF @version IS NULL OR LEN((@version + N'.') COLLATE Latin1_General_100_BIN2) NOT BETWEEN 2 AND 65
    {{ arguments.reject("version", "must have from 1 to 64 characters") }}
    IF @threads IS NULL OR @threads < 1
    {{ arguments.reject("threads", "must not be null or below 1") }}

    -- Only the worker itself writes its row; what never changes is not written again.
    UPDATE {{ db.worker }} WITH (ROWLOCK)
    SET seen_at = @now_at, topics = @topics
    WHERE owner_token = @owner_token;
    IF @@ROWCOUNT = 0
        INSERT INTO {{ db.worker }} (
            owner_token, started_at, seen_at, boxes, topics, name, host, pid, version, threads
        )
        VALUES (@owner_token, @now_at, @now_at, @boxes, @topics, @name, @host, @pid, @version, @threads);
    SELECT w.started_at, w.seen_at
    FROM {{ db.worker }} AS w
    WHERE w.owner_token = @owner_token;
END;
