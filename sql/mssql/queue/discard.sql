-- Deletes the dead and expired among these messages; all others are passed over.
-- ids: not null
-- returns: affected
-- errors: PB001
-- locks: message
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.discard }}
    @ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @affected int;
{% if box_name == "outbox" %}
    DECLARE @steps nvarchar(max);
{% endif %}
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (id bigint NOT NULL PRIMARY KEY);

    IF @ids IS NULL
        EXEC {{ db._reject }} @argument = N'ids', @rule = N'must not be null';
    IF ISJSON(@ids) = 0
        OR EXISTS (SELECT 1 FROM OPENJSON(@ids) AS j WHERE j.type <> 0 AND TRY_CONVERT(bigint, j.value) IS NULL)
        OR CHARINDEX(N'[', @ids + N'[') > CHARINDEX(N'{', @ids + N'{')
        EXEC {{ db._reject }} @argument = N'ids', @rule = N'must be a JSON array of whole numbers';
    INSERT INTO @wanted (id)
    SELECT DISTINCT CONVERT(bigint, j.value)
    FROM OPENJSON(@ids) AS j
    WHERE j.value IS NOT NULL;

    BEGIN TRANSACTION;
    DELETE d
    OUTPUT deleted.id INTO @gone (id)
    FROM @wanted AS w
    INNER JOIN {{ box.dead }} AS d WITH (ROWLOCK, FORCESEEK) ON d.id = w.id;
    SET @affected = @@ROWCOUNT;
{% if box_name == "outbox" %}

    IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
    BEGIN
        SET @steps = (SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g);
        IF @steps IS NOT NULL
            EXEC {{ db._join_mark }} @ids = @steps, @state = N'failed';
    END;
{% endif %}

    DELETE m
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
