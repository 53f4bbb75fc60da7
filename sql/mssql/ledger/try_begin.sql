-- after: _check
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}

-- Asks to work on a key. Of any number of concurrent callers exactly one acquires it: a new key, one that was
-- released, or one whose lease has run out. Everybody else hears Processed or Busy, and nothing is written.
-- A caller whose transaction is open holds up the others that ask for the same new or free key, until it ends.
-- key: 1 to 512 characters
-- owner: up to 255 characters
-- lease_seconds: from 1 to 86400; null never runs out (mark before handling)
-- handler: up to 255 characters
-- returns: status, lease_id, expires_at, attempts; status is Acquired, Processed or Busy (then expires_at is the holder's)
-- errors: PB001
-- locks: message
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.ledger_try_begin }}
    @key nvarchar(max),
    @owner nvarchar(max) = NULL,
    @lease_seconds int = NULL,
    @handler nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6);
    DECLARE @until_at datetime2(6);
    DECLARE @state nvarchar(10);
    DECLARE @status nvarchar(10);
    DECLARE @attempts int;
    DECLARE @no bigint;
    DECLARE @new_lease uniqueidentifier = NEWID();
    DECLARE @ledger_key nvarchar(513);

    {{ arguments.check_by(db._ledger_check ~ " @key = @key") }}
    IF LEN((@owner + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("owner", "must not be longer than 255 characters") }}
    IF @lease_seconds NOT BETWEEN 1 AND 86400
    {{ arguments.reject("lease_seconds", "must be from 1 to 86400, or null") }}
    IF LEN((@handler + N'.') COLLATE Latin1_General_100_BIN2) > 256
    {{ arguments.reject("handler", "must not be longer than 255 characters") }}
    SET @ledger_key = @key + N'.';

    -- Who comes too late hears so from a plain read, and waits for nobody.
    SET @now_at = {{ clock.now() }};
    SELECT @state = l.state, @until_at = l.lease_until, @attempts = l.attempts
    FROM {{ db.ledger }} AS l WITH (FORCESEEK)
    WHERE l.ledger_key = @ledger_key;
    SET @status = CASE
        WHEN @state = N'Processed' THEN N'Processed'
        WHEN @state = N'Acquired' AND (@until_at IS NULL OR @until_at > @now_at) THEN N'Busy'
    END;

    IF @status IS NULL
    BEGIN
        BEGIN TRANSACTION;
        {{ locks.wait(locks.ledger_key("@ledger_key"), "key") | indent(4) }}
        SELECT @no = l.no
        FROM {{ db.ledger }} AS l WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE l.ledger_key = @ledger_key;
        -- A write that changes nothing locks the row in every engine, against its holder and a cleanup. By its number:
        -- whoever locks it by the key first meets them crosswise.
        SET @state = NULL;
        UPDATE {{ db.ledger }} WITH (ROWLOCK)
        SET owner = owner
        WHERE no = @no;
        IF @@ROWCOUNT > 0
            SELECT @state = l.state, @until_at = l.lease_until, @attempts = l.attempts
            FROM {{ db.ledger }} AS l WITH (FORCESEEK)
            WHERE l.no = @no;
        -- Behind the locks, for the lease begins only now.
        SET @now_at = {{ clock.now() }};
        SET @status = CASE
            WHEN @state = N'Processed' THEN N'Processed'
            WHEN @state = N'Acquired' AND (@until_at IS NULL OR @until_at > @now_at) THEN N'Busy'
            ELSE N'Acquired'
        END;
        IF @status = N'Acquired'
        BEGIN
            SET @until_at = DATEADD(SECOND, @lease_seconds, @now_at);
            SET @attempts = CASE WHEN @state IS NULL THEN 0 ELSE @attempts END + 1;
        END;
        IF @status = N'Acquired' AND @state IS NULL
            INSERT INTO {{ db.ledger }} (
                ledger_key, state, lease_id, owner, lease_until, attempts, handler, first_seen_at, last_seen_at
            )
            VALUES (@ledger_key, N'Acquired', @new_lease, @owner, @until_at, @attempts, @handler, @now_at, @now_at);
        IF @status = N'Acquired' AND @state IS NOT NULL
            UPDATE {{ db.ledger }} WITH (ROWLOCK)
            SET
                state = N'Acquired',
                lease_id = @new_lease,
                owner = @owner,
                lease_until = @until_at,
                attempts = @attempts,
                handler = @handler,
                last_seen_at = @now_at
            WHERE no = @no;
        COMMIT TRANSACTION;
    END;

    SELECT
        @status AS status,
        CASE WHEN @status = N'Acquired' THEN @new_lease END AS lease_id,
        @until_at AS expires_at,
        @attempts AS attempts;
END;
