{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}

-- Locks the groups of these leased messages, before their leases are touched, as far as nobody else has them. Nobody
-- waits: what a stranger's open claim or enqueue holds is looked at again later (_regroup), and until this transaction
-- is committed its leases show that the group is held.
-- returns: text[]; here nothing, the caller sees the groups in what it deletes
-- errors: none
-- locks: group
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._lock_groups }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @group_key nvarchar(256);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @group TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        is_busy bit NOT NULL
    );

    INSERT INTO @wanted (id)
    {{ arguments.ids_of("@ids") }};

    INSERT INTO @group (group_key, is_busy)
    SELECT DISTINCT l.group_key, 0
    FROM @wanted AS w
    INNER JOIN {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK) ON l.id = w.id
    WHERE l.owner_token = @owner_token AND l.group_key IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    {{ groups.attempt_all() }}
END;
