-- after: _put_back

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/clock.sql" as clock with context %}

-- Brings dead, expired and cancelled messages back: claimable at once behind what waits already, attempt 0,
-- last_error kept.
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
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @affected int;
    DECLARE @back nvarchar(max);
{% if box_name == "outbox" %}
    DECLARE @steps nvarchar(max);
{% endif %}
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @locked TABLE (id bigint NOT NULL PRIMARY KEY, is_dead bit NOT NULL);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );

    {{ settling.check_ids() }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    -- Messages first, then what is dead: in the same order as everybody else.
    INSERT INTO @locked (id, is_dead)
    SELECT m.id, 0
    FROM @wanted AS w
    INNER JOIN {{ box.message }} AS m WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON m.id = w.id
    ORDER BY m.id
    OPTION (KEEPFIXED PLAN);

    UPDATE k
    SET is_dead = 1
    FROM @locked AS k
    INNER JOIN {{ box.dead }} AS d WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK) ON d.id = k.id
    OPTION (KEEPFIXED PLAN);
    IF EXISTS (SELECT 1 FROM @locked AS k WHERE k.is_dead = 0)
    {{ arguments.refuse(51003, "ids: only dead messages can be replayed; give ids of dead_letters alone") }}

    DELETE d
    OUTPUT deleted.id, deleted.topic_key INTO @gone (id, topic_key)
    FROM {{ box.dead }} AS d WITH (ROWLOCK, FORCESEEK)
    WHERE d.id IN (SELECT k.id FROM @locked AS k)
    OPTION (KEEPFIXED PLAN);
    SET @affected = @@ROWCOUNT;
    -- On Babelfish, which ignores lock hints, somebody may have been quicker.
    IF @affected < (SELECT COUNT(*) FROM @locked)
        THROW 51003, N'ids: only dead messages can be replayed; give ids of dead_letters alone', 1;
    {{ settling.count_dead("@gone", "-") }}
{% if box_name == "outbox" %}

    IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
    BEGIN
        SET @steps = {{ settling.array() }};
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
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id
    OPTION (KEEPFIXED PLAN);
{% if kind == "inbox" %}

    -- One that was never enqueued is marked as being processed; there is nothing to hand out.
    INSERT INTO {{ box.seen }} (id, processing)
    SELECT m.id, 1
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
    WHERE m.topic IS NULL;

    SET @back = (
        SELECT {{ arguments.array_of("m.id") }}
        FROM @gone AS g
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
        WHERE m.topic IS NOT NULL
    );
{% else %}
    SET @back = {{ settling.array() }};
{% endif %}
    IF @back IS NOT NULL
        EXEC {{ box._put_back }} @ids = @back;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
