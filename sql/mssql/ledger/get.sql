-- after: _check
{% import "macros/arguments.sql" as arguments with context %}

-- What the ledger knows of a key; always one row. status is Unknown (never seen, or released), Acquired (also with
-- a lease that has run out) or Processed. last_seen_at is the last time that a call changed anything.
-- key: 1 to 512 characters
-- returns: status, attempts, first_seen_at, last_seen_at, lease_until, handler
-- errors: PB001
-- locks: none
-- role: worker, viewer
CREATE OR ALTER PROCEDURE {{ db.ledger_get }}
    @key nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    {{ arguments.check_by(db._ledger_check ~ " @key = @key") }}
    SELECT
        ISNULL(l.state, N'Unknown') AS status, ISNULL(l.attempts, 0) AS attempts, l.first_seen_at, l.last_seen_at,
        l.lease_until, l.handler
    FROM (SELECT CONVERT(nvarchar(513), @key + N'.') COLLATE Latin1_General_100_BIN2 AS ledger_key) AS k
    LEFT JOIN {{ db.ledger }} AS l WITH (FORCESEEK) ON l.ledger_key = k.ledger_key;
END;
