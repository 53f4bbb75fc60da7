{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Who works here: whoever holds a lease, or was among those that settled last, within five minutes.
-- With who it is, where it has said so within a day; one that only has said so within ten minutes works here as well.
-- The cost is that of what is leased, of the 1000 batches that were done last and of the 1000 workers seen last.
-- limit: from 1 to 10000
-- returns: owner_token, in_flight, locked_until, done_lately, last_done_at, name, host, pid, version, threads, topics, started_at, seen_at; most in flight first, then who was done last, then by owner_token; locked_until is when the first of its leases ends
-- errors: PB001
-- locks: none
-- role: viewer
CREATE OR ALTER PROCEDURE {{ box.workers }}
    @limit int = 100
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};

    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}

    -- One statement, so that every worker is seen at one time.
    WITH held AS (
        SELECT l.owner_token, COUNT_BIG(*) AS messages, MIN(l.locked_until) AS locked_until
        FROM {{ box.lease }} AS l
        GROUP BY l.owner_token
    ),

    settled AS (
        SELECT n.processed_by AS owner_token, COUNT_BIG(*) AS messages, MAX(n.processed_at) AS last_at
        FROM (
            SELECT TOP (1000) x.processed_by, x.processed_at
            FROM {{ box.done }} AS x WITH (FORCESEEK)
            WHERE x.processed_at > DATEADD(MINUTE, -5, @now_at)
            ORDER BY x.processed_at DESC
        ) AS n
        WHERE n.processed_by IS NOT NULL
        GROUP BY n.processed_by
    ),

    known AS (
        SELECT TOP (1000)
            w.owner_token, w.started_at, w.seen_at, w.boxes, w.topics, w.name, w.host, w.pid, w.version, w.threads
        FROM {{ db.worker }} AS w WITH (FORCESEEK)
        WHERE w.seen_at > DATEADD(DAY, -1, @now_at)
        ORDER BY w.seen_at DESC
    ),

    here AS (
        SELECT h.owner_token FROM held AS h
        UNION
        SELECT s.owner_token FROM settled AS s
        UNION
        SELECT k.owner_token
        FROM known AS k
        WHERE k.seen_at > DATEADD(MINUTE, -10, @now_at)
            AND EXISTS (
                SELECT 1
                FROM OPENJSON(k.boxes) AS j
                WHERE j.value COLLATE Latin1_General_100_BIN2 = {{ box_name | literal }}
            )
    )

    SELECT TOP (@limit)
        e.owner_token, ISNULL(h.messages, 0) AS in_flight, h.locked_until, ISNULL(s.messages, 0) AS done_lately,
        s.last_at AS last_done_at, k.name, k.host, k.pid, k.version, k.threads, k.topics, k.started_at, k.seen_at
    FROM here AS e
    LEFT JOIN held AS h ON h.owner_token = e.owner_token
    LEFT JOIN settled AS s ON s.owner_token = e.owner_token
    LEFT JOIN known AS k ON k.owner_token = e.owner_token
    ORDER BY ISNULL(h.messages, 0) DESC, s.last_at DESC, e.owner_token ASC;
END;
