{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Has somebody look at these groups again a little later: what the caller can see now does not settle whether
-- they need a ticket.
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._probe }}
    @groups nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @look_at datetime2(6) = DATEADD(MILLISECOND, 200, {{ clock.now() }});

    INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic_key, group_key)
    SELECT @look_at, NEXT VALUE FOR {{ box._ids }}, 0, N'.', {{ 'g.group_key' | json_text }}
    FROM OPENJSON(@groups) WITH (group_key nvarchar(max) '$.group_key') AS g
    OPTION (KEEPFIXED PLAN);
END;
