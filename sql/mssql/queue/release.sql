-- after: _lock_groups, _put_back

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/times.sql" as times with context %}

-- Hands messages back, with no attempt counted, at once or after a delay: a worker that shuts down, changed its mind,
-- or cannot do this now. A group waits for the delay of its head.
-- owner_token: not the nil uuid
-- ids: not null
-- delay_seconds: from 0 to 1000000000; 0 or null for at once
-- returns: affected
-- errors: PB001
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.release }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max),
    @delay_seconds decimal(19, 3) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6);
    DECLARE @affected int;
    DECLARE @gone_ids nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);

    {{ settling.check() }}
    IF @delay_seconds NOT BETWEEN 0 AND 1000000000
    {{ arguments.reject("delay_seconds", "must be from 0 to 1000000000") }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;

    {{ settling.take("deleted.id", "id") }}
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        IF @delay_seconds > 0
        BEGIN
            SET @now_at = {{ clock.now() }};
            UPDATE m
            SET due_at = {{ times.after("@now_at", "@delay_seconds") | indent(12) }}
            FROM @gone AS g
            INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id
            OPTION (KEEPFIXED PLAN);
        END;
        SET @gone_ids = {{ settling.array() }};
        EXEC {{ box._put_back }} @ids = @gone_ids;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
