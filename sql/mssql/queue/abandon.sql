-- after: _lock_groups, _put_back

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/times.sql" as times with context %}
{% import "macros/texts.sql" as texts with context %}

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

    DECLARE @now_at datetime2(6);
    DECLARE @base float;
    DECLARE @cap float;
    DECLARE @delay float = @delay_seconds;
    DECLARE @affected int;
    DECLARE @kept_error nvarchar(max) = {{ texts.cut("@last_error") | indent(4) }};
    DECLARE @gone_ids nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @tried TABLE (id bigint NOT NULL PRIMARY KEY, attempt int NOT NULL, wait_seconds float NOT NULL);

    {{ settling.check() }}
    IF @delay_seconds <= 0 OR @delay_seconds > 1000000000
    {{ arguments.reject("delay_seconds", "must be above 0 and at most 1000000000") }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;

    {{ settling.take("deleted.id", "id") }}
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        {{ times.read_backoff() | indent(4) }}

        INSERT INTO @tried (id, attempt, wait_seconds)
        SELECT
            m.id,
            m.attempt + 1,
            {{ times.backoff("@delay") | indent(12) }}
        FROM @gone AS g
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
        OPTION (KEEPFIXED PLAN);

        SET @now_at = {{ clock.now() }};
        UPDATE m
        SET
            attempt = t.attempt,
            due_at = {{ times.after("@now_at", "t.wait_seconds") | indent(12) }},
            last_error = CASE WHEN LEN(@last_error + N'.') > 1 THEN @kept_error ELSE m.last_error END
        FROM @tried AS t
        INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = t.id
        OPTION (KEEPFIXED PLAN);

        SET @gone_ids = {{ settling.array() }};
        EXEC {{ box._put_back }} @ids = @gone_ids;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
