{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/clock.sql" as clock with context %}

-- Prolongs leases from now on, and names those that are still this owner's; whatever is missing is lost.
-- owner_token: not the nil uuid
-- ids: not null
-- lease_seconds: from 1 to 86400
-- returns: id, locked_until; in id order
-- errors: PB001
-- locks: lease
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.extend }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max),
    @lease_seconds int
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @until_at datetime2(6);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @kept TABLE (id bigint NOT NULL PRIMARY KEY);

    {{ settling.check() }}
    IF @lease_seconds IS NULL OR @lease_seconds NOT BETWEEN 1 AND 86400
    {{ arguments.reject("lease_seconds", "must be from 1 to 86400") }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    -- Locked in id order first; the clock is read behind whatever had to be waited for.
    INSERT INTO @kept (id)
    SELECT l.id
    FROM @wanted AS w
    INNER JOIN {{ box.lease }} AS l WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON l.id = w.id
    WHERE l.owner_token = @owner_token
    ORDER BY l.id
    OPTION (KEEPFIXED PLAN);

    SET @until_at = DATEADD(SECOND, @lease_seconds, {{ clock.now() }});
    -- Without a join: on Babelfish that would lose the leases that somebody has just extended or held.
    UPDATE l
    SET locked_until = @until_at
    FROM {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK)
    WHERE l.owner_token = @owner_token AND l.id IN (SELECT k.id FROM @kept AS k)
    OPTION (KEEPFIXED PLAN);

    SELECT l.id, l.locked_until
    FROM @kept AS k
    INNER JOIN {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK) ON l.id = k.id
    WHERE l.owner_token = @owner_token AND l.locked_until = @until_at
    ORDER BY l.id
    OPTION (KEEPFIXED PLAN);
    COMMIT TRANSACTION;
END;
