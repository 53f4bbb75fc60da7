-- after: _step
{% import "macros/arguments.sql" as arguments with context %}

-- Counts a step that is not counted yet, whatever its message does later.
-- state: completed or failed
-- returns: boolean; here the number of steps counted
-- errors: PB001, PB002
-- locks: group, lease, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._join_report }}
    @join_id uniqueidentifier,
    @message_id uniqueidentifier,
    @state nvarchar(10)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @id bigint;
    DECLARE @held nvarchar(10);
    DECLARE @counted int = 0;

    IF @join_id IS NULL
    {{ arguments.reject("join_id", "must not be null") }}
    IF @message_id IS NULL
    {{ arguments.reject("message_id", "must not be null") }}
    SELECT @id = jm.id
    FROM {{ db.join_member }} AS jm WITH (FORCESEEK)
    WHERE jm.join_id = @join_id AND jm.message_id = @message_id;
    IF @id IS NULL AND EXISTS (SELECT 1 FROM {{ db.join }} AS j WITH (FORCESEEK) WHERE j.join_id = @join_id)
    {{ arguments.raise(51002, "message_id: not a step of this join; attach it first") }}
    IF @id IS NULL
    {{ arguments.raise(51002, "join_id: no such join; it must be what join_start answered, in this schema") }}

    BEGIN TRANSACTION;
    -- One that is over was counted by that. Of one that is not, nobody else can decide before this transaction ends.
    EXEC {{ db._outbox_hold }} @id = @id, @state = @held OUTPUT;
    IF @held = N'pending'
    BEGIN
        UPDATE {{ db.join_member }} WITH (ROWLOCK)
        SET counted = @state
        WHERE join_id = @join_id AND message_id = @message_id AND counted IS NULL;
        SET @counted = @@ROWCOUNT;
        IF @counted > 0
            EXEC {{ db._join_step }} @join_id = @join_id, @state = @state;
    END;
    COMMIT TRANSACTION;
    RETURN @counted;
END;
