-- after: _lock_groups, _bury, _regroup

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}

-- Gives messages up for good: they are dead, with the error, until a replay or a discard.
-- owner_token: not the nil uuid
-- ids: not null
-- error: not null; recorded up to 16384 characters
-- returns: affected
-- errors: PB001
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.fail }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max),
    @error nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @affected int;
    DECLARE @gone_ids nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );

    {{ settling.check() }}
    IF @error IS NULL
    {{ arguments.reject("error", "must not be null") }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;

    {{ settling.take("deleted.id, deleted.group_key", "id, group_key") }}
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        SET @gone_ids = {{ settling.array() }};
        EXEC {{ box._bury }} @ids = @gone_ids, @error = @error, @expired = 0;

        SET @groups = {{ settling.groups() }};
        IF @groups IS NOT NULL
            EXEC {{ box._regroup }} @groups = @groups;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
