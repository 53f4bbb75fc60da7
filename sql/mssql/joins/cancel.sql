-- after: _nudge
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}

-- Ends a pending join without its follow-up message. Its steps go on, and go on being counted.
-- Its join.wait message becomes due, so that a handler sees that there is nothing to wait for.
-- join_id: not null
-- returns: cancelled; false if it was over before
-- errors: PB001, PB002
-- locks: join
-- role: producer
CREATE OR ALTER PROCEDURE {{ db.join_cancel }}
    @join_id uniqueidentifier
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6);
    {{ locks.variables() }}
    DECLARE @cancelled bit = 0;

    IF @join_id IS NULL
    {{ arguments.reject("join_id", "must not be null") }}

    BEGIN TRANSACTION;
    {{ locks.wait(locks.join("@join_id"), "join") }}
    IF NOT EXISTS (SELECT 1 FROM {{ db.join }} AS j WITH (FORCESEEK) WHERE j.join_id = @join_id)
    {{ arguments.refuse(51002, "join_id: no such join; it must be what join_start answered, in this schema") }}

    SET @now_at = {{ clock.now() }};
    UPDATE {{ db.join }} WITH (ROWLOCK)
    SET status = N'Cancelled', finished_at = @now_at, last_updated_at = @now_at
    WHERE join_id = @join_id AND status = N'Pending';
    IF @@ROWCOUNT > 0
    BEGIN
        SET @cancelled = 1;
        EXEC {{ db._join_nudge }} @join_id = @join_id;
    END;
    COMMIT TRANSACTION;

    SELECT @cancelled AS cancelled;
END;
