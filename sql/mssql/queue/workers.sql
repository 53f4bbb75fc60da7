{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Who works here: whoever holds a lease, or was among those that settled last, within five minutes.
-- There is no register of workers: these are the owner_tokens that they claim by. The cost is that of what is leased
-- and of the 1000 batches that were done last.
-- limit: from 1 to 10000
-- returns: owner_token, in_flight, locked_until, done_lately, last_done_at; most in flight first, then who was done last; locked_until is when the first of its leases ends
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
    SELECT TOP (@limit) w.owner_token, w.in_flight, w.locked_until, w.done_lately, w.last_done_at
    FROM (
        SELECT
            COALESCE(h.owner_token, s.processed_by) AS owner_token, ISNULL(h.messages, 0) AS in_flight, h.locked_until,
            ISNULL(s.messages, 0) AS done_lately, s.last_at AS last_done_at
        FROM (
            SELECT l.owner_token, COUNT_BIG(*) AS messages, MIN(l.locked_until) AS locked_until
            FROM {{ box.lease }} AS l
            GROUP BY l.owner_token
        ) AS h
        FULL JOIN (
            SELECT n.processed_by, COUNT_BIG(*) AS messages, MAX(n.processed_at) AS last_at
            FROM (
                SELECT TOP (1000) x.processed_by, x.processed_at
                FROM {{ box.done }} AS x WITH (FORCESEEK)
                WHERE x.processed_at > DATEADD(MINUTE, -5, @now_at)
                ORDER BY x.processed_at DESC
            ) AS n
            WHERE n.processed_by IS NOT NULL
            GROUP BY n.processed_by
        ) AS s ON s.processed_by = h.owner_token
    ) AS w
    ORDER BY w.in_flight DESC, w.last_done_at DESC, w.owner_token ASC;
END;
