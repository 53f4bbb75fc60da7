{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/texts.sql" as texts with context %}

-- Makes messages dead that the caller has just taken out of where they were. Their groups are the caller's to
-- give a new ticket.
-- error: kept as last_error, up to 16384 characters; null leaves what is there
-- returns: none
-- errors: none
-- locks: message
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._bury }}
    @ids nvarchar(max),
    @error nvarchar(max),
    @expired bit,
    @cancelled bit = 0
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @kept_error nvarchar(max) = {{ texts.cut("@error") | indent(4) }};
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @buried TABLE (topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2);

    INSERT INTO @wanted (id)
    {{ arguments.ids_of("@ids") }};

    IF @error IS NOT NULL
        UPDATE m
        SET last_error = @kept_error
        FROM @wanted AS w
        INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = w.id
        OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.dead }} (id, died_at, expired, cancelled, topic_key)
    OUTPUT inserted.topic_key INTO @buried (topic_key)
    SELECT m.id, @now_at, @expired, @cancelled, m.topic + N'.'
    FROM @wanted AS w
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = w.id
    OPTION (KEEPFIXED PLAN);
    {{ settling.count_dead("@buried") }}
{% if box_name == "outbox" %}

    IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
        EXEC {{ db._join_count }} @ids = @ids, @state = N'failed';
{% endif %}
END;
