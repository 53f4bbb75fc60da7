{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}

-- Deletes the dead, expired and cancelled among these messages; all others are passed over.
-- ids: not null
-- returns: affected
-- errors: PB001
-- locks: message
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.discard }}
    @ids nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @affected int;
{% if box_name == "outbox" %}
    DECLARE @steps nvarchar(max);
{% endif %}
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @locked TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @message TABLE (
        id bigint NOT NULL PRIMARY KEY,
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );

    {{ settling.check_ids() }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    -- What is dead is locked by its message first, as everybody does; what is not is left alone.
    INSERT INTO @locked (id)
    SELECT m.id
    FROM @wanted AS w
    INNER JOIN {{ box.dead }} AS d WITH (FORCESEEK) ON d.id = w.id
    INNER JOIN {{ box.message }} AS m WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = w.id
    ORDER BY m.id
    OPTION (KEEPFIXED PLAN);

    DELETE d
    OUTPUT deleted.id, deleted.topic_key INTO @gone (id, topic_key)
    FROM {{ box.dead }} AS d WITH (ROWLOCK, FORCESEEK)
    WHERE d.id IN (SELECT k.id FROM @locked AS k)
    OPTION (KEEPFIXED PLAN);
    SET @affected = @@ROWCOUNT;
    {{ settling.count_dead("@gone", "-") }}
{% if box_name == "outbox" %}

    IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
    BEGIN
        SET @steps = {{ settling.array() }};
        IF @steps IS NOT NULL
            EXEC {{ db._join_mark }} @ids = @steps, @state = N'failed';
    END;
{% endif %}

    INSERT INTO @message (id, collapse_key)
    SELECT m.id, m.collapse_key + N'.'
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
    WHERE m.collapse_key IS NOT NULL
    OPTION (KEEPFIXED PLAN);

    DELETE m
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id
    OPTION (KEEPFIXED PLAN);

    -- Nobody has to replace it any more.
    DELETE c
    FROM @message AS m
    INNER JOIN {{ box.collapse }} AS c WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON c.collapse_key = m.collapse_key AND c.id = m.id
    OPTION (KEEPFIXED PLAN);
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
