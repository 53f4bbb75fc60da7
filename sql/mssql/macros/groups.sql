{#-
FIFO groups: their locks, and tickets for what becomes ready in a certain order.

A group's lock is taken without waiting. Whoever has it may hand out the group's members, take members away and say
whether the group needs a ticket; who does not get it leaves the group to be looked at again (_probe). What is under
the lock is read plainly, so by the versions that are committed: a row that somebody has merely locked is there all the
same, and none is passed over.
-#}
{% import "macros/locks.sql" as locks with context %}
{% import "macros/messages.sql" as messages with context %}

{#- Marks those of @group (group_key, is_busy) that somebody else has; @group_key is the caller's variable. -#}
{% macro attempt_all() -%}
    SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g);
    WHILE @group_key IS NOT NULL
    BEGIN
        {{ locks.attempt(locks.group("@group_key")) | indent(4) }}
        IF @lock_got < 0
            UPDATE @group SET is_busy = 1 WHERE group_key = @group_key;
        SET @group_key = (SELECT MIN(g.group_key) FROM @group AS g WHERE g.group_key > @group_key);
    END;
{%- endmacro %}

{#-
Waits for the groups of a table's group_key, one after another in the order of their names; who has the lock already keeps
it. @group_key is the caller's variable.
-#}
{% macro wait_all(table, of=none) -%}
    SET @group_key = (SELECT MIN(g.group_key) FROM {{ table }} AS g);
    WHILE @group_key IS NOT NULL
    BEGIN
        {{ locks.wait(locks.group("@group_key", of), "group") | indent(4) }}
        SET @group_key = (SELECT MIN(g.group_key) FROM {{ table }} AS g WHERE g.group_key > @group_key);
    END;
{%- endmacro %}

{#- Whether anybody's lease of a group is committed, or is this transaction's own. -#}
{% macro is_held(group_key) -%}
    EXISTS (
        SELECT 1
        FROM {{ box.lease }} AS l WITH (FORCESEEK)
        WHERE l.group_key = {{ group_key }} AND l.group_key IS NOT NULL
    )
{%- endmacro %}

{#-
Of the groups of the oldest waiting members g, those that nobody holds and that have two members at least: the first h, the
next one n, and since when each of them could have been handed out. What follows goes on behind WHERE. Wants @now_at.
members: how many of the oldest are looked at
-#}
{% macro waiting_heads(members) -%}
    FROM (
        SELECT DISTINCT f.group_key
        FROM (
            SELECT TOP ({{ members }}) gm.group_key
            FROM {{ box.group_member }} AS gm WITH (FORCESEEK)
            WHERE gm.id > 0
            ORDER BY gm.id
        ) AS f
    ) AS g
    CROSS APPLY (
        SELECT TOP (1)
            m.id, m.topic, m.due_at, m.attempt, {{ messages.came_at() }} AS came_at,
            CASE
                WHEN EXISTS (SELECT 1 FROM {{ box.paused }} AS p WHERE p.topic_key = m.topic + N'.') THEN 1
                ELSE 0
            END AS is_paused
        FROM {{ box.group_member }} AS gm WITH (FORCESEEK)
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = gm.id
        WHERE gm.group_key = g.group_key
        ORDER BY gm.id
    ) AS h
    CROSS APPLY (
        SELECT TOP (1) {{ messages.since() }} AS since
        FROM {{ box.group_member }} AS gm WITH (FORCESEEK)
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = gm.id
        WHERE gm.group_key = g.group_key AND gm.id > h.id
        ORDER BY gm.id
    ) AS n
    WHERE NOT {{ is_held("g.group_key") | indent(4) }}
{%- endmacro %}

{#- Babelfish cannot change the isolation level over within a transaction: this is what it has to be asked for. -#}
{% macro read_level() -%}
    EXEC sys.sp_executesql
        N'SELECT @level = pg_catalog.current_setting(''transaction_isolation'');',
        N'@level nvarchar(60) OUTPUT', @level = @level OUTPUT;
{%- endmacro %}

{#-
Tickets: a caller ranks its rows by the identity column place of a table of its own, and joins @ticket by place.
Neither engine can be asked for values of a sequence in a certain order, so they are drawn first and ranked then.
-#}
{% macro ticket_tables() -%}
    DECLARE @drawn TABLE (ticket bigint NOT NULL PRIMARY KEY);
    DECLARE @ticket TABLE (place int IDENTITY (1, 1) NOT NULL PRIMARY KEY, ticket bigint NOT NULL);
{%- endmacro %}

{#- where: which of them are new, if some have theirs -#}
{% macro draw_tickets(for_table, where="") -%}
    DELETE FROM @drawn;
    INSERT INTO @drawn (ticket)
    SELECT NEXT VALUE FOR {{ box._ids }}
    FROM {{ for_table }}{{ " WHERE " ~ where if where }};

    INSERT INTO @ticket (ticket)
    SELECT d.ticket
    FROM @drawn AS d
    ORDER BY d.ticket;
{%- endmacro %}
