-- after: _bury, _lock_groups, _put_back, _regroup

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}

-- Gives messages back for another try: one attempt counted, claimable again after the delay or the backoff,
-- behind what was claimable before. Touches only what this owner holds. Does not look at max_attempts.
-- owner_token: not the nil uuid
-- ids: not null
-- last_error: recorded unless null or empty, up to 16384 characters
-- delay_seconds: above 0, at most 1000000000; null for the backoff, min(backoff_base * 2^attempt, backoff_cap)
-- returns: affected
-- errors: PB001
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.abandon }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max),
    @last_error nvarchar(max) = NULL,
    @delay_seconds decimal(19, 3) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @limit_attempts int = 0;
    {{ settling.tries() }}

    {{ settling.check() }}
    IF @delay_seconds <= 0 OR @delay_seconds > 1000000000
    {{ arguments.reject("delay_seconds", "must be above 0 and at most 1000000000") }}
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

    SELECT @affected AS affected;
END;
