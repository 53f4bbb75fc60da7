-- after: _check

-- Gives a key back unprocessed, for anybody to acquire. Its attempts stay.
-- key: 1 to 512 characters
-- lease_id: not null
-- returns: affected; 0 if the lease is not the key's any more
-- errors: PB001
-- locks: message
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.ledger_release }}
    @key nvarchar(max),
    @lease_id uniqueidentifier
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @affected int;

    EXEC {{ db._ledger_check }} @key = @key;
    IF @lease_id IS NULL
        EXEC {{ db._reject }} @argument = N'lease_id', @rule = N'must not be null';

    UPDATE {{ db.ledger }} WITH (ROWLOCK)
    SET state = N'Unknown', lease_id = NULL, lease_until = NULL, last_seen_at = {{ db._now }}()
    WHERE ledger_key = CONVERT(nvarchar(513), @key + N'.') AND state = N'Acquired' AND lease_id = @lease_id;
    SET @affected = @@ROWCOUNT;

    SELECT @affected AS affected;
END;
