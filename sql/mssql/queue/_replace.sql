-- after: _withdraw

{% import "macros/arguments.sql" as arguments with context %}

-- Removes the older waiting messages of these messages' collapse keys, and enters these as the newest. What is
-- claimed or settled stays, and so does what another transaction is just claiming or collapsing: nobody waits.
-- newest: the message of each key that stays, a JSON array
-- returns: text[]; here the number of messages removed
-- errors: none
-- locks: group, message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._replace }}
    @newest nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @id bigint;
    DECLARE @ids nvarchar(max);
    DECLARE @taken int;
    DECLARE @groups nvarchar(max);
{% if box_name == "outbox" %}
    DECLARE @steps nvarchar(max);
{% endif %}
    DECLARE @key TABLE (
        collapse_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        id bigint NOT NULL
    );
    DECLARE @older TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @removed TABLE (id bigint NOT NULL PRIMARY KEY);

    INSERT INTO @key (collapse_key, id)
    SELECT m.collapse_key + N'.', m.id
    FROM OPENJSON(@newest) AS j
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = CONVERT(bigint, j.value)
    OPTION (KEEPFIXED PLAN);

    DELETE c
    OUTPUT deleted.id INTO @older (id)
    FROM @key AS k
    INNER JOIN {{ box.collapse }} AS c WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        ON c.collapse_key = k.collapse_key AND c.id < k.id
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.collapse }} (collapse_key, id)
    SELECT k.collapse_key, k.id
    FROM @key AS k
    OPTION (KEEPFIXED PLAN);

    SET @id = (SELECT MIN(o.id) FROM @older AS o);
    WHILE @id IS NOT NULL
    BEGIN
        SET @ids = CONCAT(N'[', @id, N']');
        EXEC @taken = {{ box._withdraw }} @ids = @ids;
        IF @taken = 1
            INSERT INTO @removed (id) VALUES (@id);
        SET @id = (SELECT MIN(o.id) FROM @older AS o WHERE o.id > @id);
    END;

    SET @groups = (
        SELECT DISTINCT m.group_id + N'.' AS group_key
        FROM @removed AS r
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = r.id
        WHERE m.group_id IS NOT NULL
        FOR JSON PATH
    );
    DELETE m
    FROM @removed AS r
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = r.id
    OPTION (KEEPFIXED PLAN);
    SET @taken = @@ROWCOUNT;
{% if box_name == "outbox" %}

    IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
    BEGIN
        SET @steps = (SELECT {{ arguments.array_of("r.id") }} FROM @removed AS r);
        IF @steps IS NOT NULL
        BEGIN
            EXEC {{ db._join_count }} @ids = @steps, @state = N'failed';
            EXEC {{ db._join_mark }} @ids = @steps, @state = N'failed';
        END;
    END;
{% endif %}

    -- Who was behind a head that is gone need not wait for its time, or for a claim of its topic.
    IF @groups IS NOT NULL
        EXEC {{ box._regroup }} @groups = @groups;
    RETURN @taken;
END;
