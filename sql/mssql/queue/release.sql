-- after: _lock_groups, _put_back

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}

-- Hands messages back at once, with no attempt counted: a worker that shuts down, or changed its mind.
-- owner_token: not the nil uuid
-- ids: not null
-- returns: affected
-- errors: PB001
-- locks: group, lease
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.release }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @affected int;
    DECLARE @gone_ids nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);

    {{ settling.check() }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;

    {{ settling.take("deleted.id", "id") }}
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        SET @gone_ids = {{ settling.array() }};
        EXEC {{ box._put_back }} @ids = @gone_ids;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
