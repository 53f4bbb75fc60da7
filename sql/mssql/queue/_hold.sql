{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/locks.sql" as locks with context %}

-- Locks a message where it stands, until the transaction ends, if it is not over yet, and says what became of it:
-- nobody can settle or claim it meanwhile, and whoever waits for it finds what the caller writes. A claim passes it
-- over. If it moves on while this waits for it, it is looked for again.
-- id: of a message that was enqueued
-- state: the answer; null if there is no such message
-- returns: text; in state: pending, completed or failed, null if there is no such message
-- errors: none
-- locks: group, lease, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._hold }}
    @id bigint,
    @state nvarchar(10) OUTPUT
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @lane int;
    DECLARE @due_at datetime2(6);
    DECLARE @group_key nvarchar(256);
    DECLARE @place_lane int;
    DECLARE @place_ticket bigint;
    {{ locks.variables() }}
    DECLARE @tries int = 0;

    -- A write that changes nothing locks the row in every engine.
    SET @state = NULL;
    WHILE @state IS NULL AND @id IS NOT NULL
    BEGIN
        SET @lane = NULL;
        SELECT @lane = 0 - m.priority, @due_at = m.due_at, @group_key = m.group_id + N'.'
        FROM {{ box.message }} AS m WITH (FORCESEEK)
        WHERE m.id = @id
        OPTION (KEEPFIXED PLAN);
        IF @lane IS NULL
            RETURN;
        SET @tries += 1;
        IF @tries > 1000
            THROW 50001, N'message: does not stand still, try again', 1;

        IF @group_key IS NULL
        BEGIN
            UPDATE {{ box.ready }} WITH (ROWLOCK)
            SET expires_at = expires_at
            WHERE lane = @lane AND ticket = @id AND id IS NULL AND group_key IS NULL
            OPTION (KEEPFIXED PLAN);
            IF @@ROWCOUNT > 0
                SET @state = N'pending';
        END;
        IF @state IS NULL
        BEGIN
            UPDATE {{ box.lease }} WITH (ROWLOCK)
            SET owner_token = owner_token
            WHERE id = @id
            OPTION (KEEPFIXED PLAN);
            IF @@ROWCOUNT > 0
                SET @state = N'pending';
        END;
        IF @state IS NULL AND @group_key IS NULL
        BEGIN
            UPDATE {{ box.scheduled }} WITH (ROWLOCK)
            SET expires_at = expires_at
            WHERE due_at = @due_at AND no = @id AND id = @id
            OPTION (KEEPFIXED PLAN);
            IF @@ROWCOUNT > 0
                SET @state = N'pending';
        END;
        IF @state IS NULL AND @group_key IS NULL
        BEGIN
            -- Found through the index without keeping locks, then locked by key: in the same order as a claim does.
            SET @place_ticket = NULL;
            SELECT @place_lane = r.lane, @place_ticket = r.ticket
            FROM {{ box.ready }} AS r WITH (FORCESEEK)
            WHERE r.id = @id AND r.id IS NOT NULL
            OPTION (KEEPFIXED PLAN);

            UPDATE {{ box.ready }} WITH (ROWLOCK)
            SET expires_at = expires_at
            WHERE lane = @place_lane AND ticket = @place_ticket AND id = @id
            OPTION (KEEPFIXED PLAN);
            IF @@ROWCOUNT > 0
                SET @state = N'pending';
        END;
        IF @state IS NULL AND @group_key IS NOT NULL
        BEGIN
            -- Members are claimed only under their group's lock. A member's own row must not be locked: claims would
            -- take it for one that is not committed yet, and hand out those behind it.
            {{ locks.wait(locks.group("@group_key"), "group") | indent(8) }}
            IF EXISTS (
                SELECT 1
                FROM {{ box.group_member }} AS gm WITH (FORCESEEK)
                WHERE gm.group_key = @group_key AND gm.id = @id
            )
                SET @state = N'pending';
        END;
        -- What is over need not be locked: it has counted, and a replay writes that down.
        IF @state IS NULL AND EXISTS (SELECT 1 FROM {{ box.dead }} AS d WITH (FORCESEEK) WHERE d.id = @id)
            SET @state = N'failed';
        IF @state IS NULL AND EXISTS (SELECT 1 FROM {{ box.done }} AS n WITH (FORCESEEK) WHERE n.id = @id)
            SET @state = N'completed';
    END;
END;
