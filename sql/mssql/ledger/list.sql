{% import "macros/arguments.sql" as arguments with context %}

-- What the ledger knows of many keys, a page at a time, by key.
-- A page of keys, or of those with a prefix, costs what it shows; one of a status also what it passes over.
-- prefix: only keys that begin with this; null or empty for all
-- status: Unknown (released), Acquired or Processed; null for all
-- limit: from 1 to 10000
-- after: the last key of the page before; it need not exist any more
-- returns: key, status, attempts, first_seen_at, last_seen_at, lease_until, handler; by key
-- errors: PB001
-- locks: none
-- role: viewer
CREATE OR ALTER PROCEDURE {{ db.ledger_list }}
    @prefix nvarchar(max) = NULL,
    @status nvarchar(max) = NULL,
    @limit int = 100,
    @after nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    -- LEN passes over trailing blanks, so an end mark is put behind a text.
    DECLARE @length int = ISNULL(LEN((@prefix + N'.') COLLATE Latin1_General_100_BIN2) - 1, 0);
    DECLARE @pattern nvarchar(2000);

    IF (@status + N'.') COLLATE Latin1_General_100_BIN2 NOT IN (N'Unknown.', N'Acquired.', N'Processed.')
    {{ arguments.reject("status", "must be Unknown, Acquired or Processed") }}
    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}

    -- A key's order is that of its key form, the text with a full stop behind it.
    SET @pattern = CONVERT(nvarchar(2000), REPLACE(REPLACE(REPLACE(REPLACE(
        LEFT(@prefix, 512) COLLATE Latin1_General_100_BIN2, N'!', N'!!'), N'%', N'!%'), N'_', N'!_'), N'[', N'![') + N'%');
    SELECT TOP (@limit)
        LEFT(l.ledger_key, LEN(l.ledger_key) - 1) AS [key], l.state AS status, l.attempts, l.first_seen_at,
        l.last_seen_at, l.lease_until, l.handler
    FROM {{ db.ledger }} AS l
    WHERE (@length = 0 OR (LEN(l.ledger_key) > @length AND l.ledger_key LIKE @pattern ESCAPE N'!'))
        AND (@after IS NULL OR l.ledger_key > CONVERT(nvarchar(513), LEFT(@after, 512) + N'.') COLLATE Latin1_General_100_BIN2)
        AND (@status IS NULL OR l.state = CONVERT(nvarchar(10), @status))
    ORDER BY l.ledger_key
    -- Whether a range of the index serves depends on which arguments are given.
    OPTION (RECOMPILE);
END;
