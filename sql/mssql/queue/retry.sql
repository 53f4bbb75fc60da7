-- after: _bury, _lock_groups, _put_back, _regroup

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}

-- Gives messages back for another try, as abandon does, but those whose attempts thereby reach max_attempts are
-- dead. So the decision is the database's, also for a caller that may not read the box's settings.
-- owner_token: not the nil uuid
-- ids: not null
-- last_error: recorded unless null or empty, up to 16384 characters
-- delay_seconds: above 0, at most 1000000000; null for the backoff, min(backoff_base * 2^attempt, backoff_cap)
-- max_attempts: from 0, which is no limit; null for the box's setting
-- returns: affected, dead; affected counts the dead too
-- errors: PB001
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.retry }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max),
    @last_error nvarchar(max) = NULL,
    @delay_seconds decimal(19, 3) = NULL,
    @max_attempts int = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @limit_attempts int = @max_attempts;
    {{ settling.tries() }}

    {{ settling.check() }}
    IF @delay_seconds <= 0 OR @delay_seconds > 1000000000
    {{ arguments.reject("delay_seconds", "must be above 0 and at most 1000000000") }}
    IF @max_attempts < 0
    {{ arguments.reject("max_attempts", "must not be negative") }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;

    {{ settling.take("deleted.id, deleted.group_key", "id, group_key") }}
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        {{ settling.try_again() | indent(4) }}
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected, @dead AS dead;
END;
