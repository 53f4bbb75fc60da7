-- after: _check
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

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
    {{ arguments.begin() }}

    DECLARE @no bigint;
    DECLARE @affected int;

    {{ arguments.check_by(db._ledger_check ~ " @key = @key") }}
    IF @lease_id IS NULL
    {{ arguments.reject("lease_id", "must not be null") }}

    -- Looked up by the key, then locked by its number: in the same order as a cleanup does.
    BEGIN TRANSACTION;
    SELECT @no = l.no
    FROM {{ db.ledger }} AS l WITH (FORCESEEK)
    WHERE l.ledger_key = CONVERT(nvarchar(513), @key + N'.');
    UPDATE {{ db.ledger }} WITH (ROWLOCK)
    SET state = N'Unknown', lease_id = NULL, lease_until = NULL, last_seen_at = {{ clock.now() }}
    WHERE no = @no AND state = N'Acquired' AND lease_id = @lease_id;
    SET @affected = @@ROWCOUNT;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
