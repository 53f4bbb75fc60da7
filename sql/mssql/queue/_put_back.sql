-- after: _place, _regroup

{% import "macros/arguments.sql" as arguments with context %}

-- Makes messages wait again that nobody holds any more: the ungrouped at the tail, the grouped as members of
-- their group, at the place their id gives them.
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._put_back }}
    @ids nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @groups nvarchar(max);
    DECLARE @ungrouped nvarchar(max) = @ids;
    DECLARE @wanted TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );

    INSERT INTO @wanted (id, group_key)
    SELECT m.id, m.group_id + N'.'
    FROM OPENJSON(@ids) AS j
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = CONVERT(bigint, j.value)
    OPTION (KEEPFIXED PLAN);

    IF EXISTS (SELECT 1 FROM @wanted AS w WHERE w.group_key IS NOT NULL)
    BEGIN
        INSERT INTO {{ box.group_member }} (group_key, id)
        SELECT w.group_key, w.id
        FROM @wanted AS w
        WHERE w.group_key IS NOT NULL
        OPTION (KEEPFIXED PLAN);

        SET @ungrouped = (SELECT {{ arguments.array_of("w.id") }} FROM @wanted AS w WHERE w.group_key IS NULL);
        SET @groups = (
            SELECT DISTINCT w.group_key FROM @wanted AS w WHERE w.group_key IS NOT NULL FOR JSON PATH
        );
    END;

    IF @ungrouped IS NOT NULL
        EXEC {{ box._place }} @ids = @ungrouped;
    IF @groups IS NOT NULL
        EXEC {{ box._regroup }} @groups = @groups;
END;
