-- after: _lock_groups, _regroup

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/clock.sql" as clock with context %}

-- Marks messages done. Only those that this owner holds; all others, and repeated ids, are passed over.
-- owner_token: not the nil uuid
-- ids: not null
-- returns: affected
-- errors: PB001
-- locks: group, lease
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.ack }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @affected int;
    DECLARE @groups nvarchar(max);
{% if box_name == "outbox" %}
    DECLARE @steps nvarchar(max);
{% endif %}
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );

    {{ settling.check() }}
    {{ settling.wanted() }}

    BEGIN TRANSACTION;
    IF {{ settling.any_group_is_held() }}
        EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;

    {{ settling.take("deleted.id, deleted.topic_key, deleted.group_key", "id, topic_key, group_key") }}
    SET @affected = @@ROWCOUNT;

    IF @affected > 0
    BEGIN
        INSERT INTO {{ box.done }} (id, processed_at, processed_by)
        SELECT g.id, {{ clock.now() }}, @owner_token
        FROM @gone AS g
        OPTION (KEEPFIXED PLAN);

        INSERT INTO {{ box.tally }} (topic_key, done)
        SELECT g.topic_key, COUNT(*)
        FROM @gone AS g
        GROUP BY g.topic_key
        OPTION (KEEPFIXED PLAN);
{% if box_name == "outbox" %}

        IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
        BEGIN
            SET @steps = {{ settling.array() }};
            EXEC {{ db._join_count }} @ids = @steps, @state = N'completed';
        END;
{% endif %}

        SET @groups = {{ settling.groups() }};
        IF @groups IS NOT NULL
            EXEC {{ box._regroup }} @groups = @groups;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
