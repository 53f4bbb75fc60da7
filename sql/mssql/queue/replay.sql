-- after: _put_back

-- Brings dead and expired messages back: claimable at once behind what waits already, attempt 0, last_error kept.
-- All or none: a message among them that is not dead is refused. Unknown ids are passed over.
-- ids: not null
-- returns: affected
-- errors: PB001, PB003
-- locks: message
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.replay }}
    @ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @now_at datetime2(6) = {{ db._now }}();
    DECLARE @affected int;
    DECLARE @back nvarchar(max);
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

    IF EXISTS (
        SELECT 1
        FROM @wanted AS w
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = w.id
        WHERE w.id NOT IN (SELECT g.id FROM @gone AS g)
    )
        THROW 51003, N'ids: only dead messages can be replayed', 1;
{% if box_name == "outbox" %}

    IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
    BEGIN
        SET @steps = (SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g);
        IF @steps IS NOT NULL
            EXEC {{ db._join_mark }} @ids = @steps, @state = N'failed';
    END;
{% endif %}

    UPDATE m
    SET
        attempt = 0,
        due_at = NULL,
        expires_at = CASE WHEN m.expires_at > @now_at THEN m.expires_at END
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id;
{% if kind == "inbox" %}

    -- One that was never enqueued is marked as being processed; there is nothing to hand out.
    INSERT INTO {{ box.seen }} (id, processing)
    SELECT m.id, 1
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
    WHERE m.topic IS NULL;

    SET @back = (
        SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), m.id), N',') + N']'
        FROM @gone AS g
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
        WHERE m.topic IS NOT NULL
    );
{% else %}
    SET @back = (SELECT N'[' + STRING_AGG(CONVERT(nvarchar(max), g.id), N',') + N']' FROM @gone AS g);
{% endif %}
    IF @back IS NOT NULL
        EXEC {{ box._put_back }} @ids = @back;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
