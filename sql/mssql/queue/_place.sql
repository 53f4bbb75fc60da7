{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/groups.sql" as groups with context %}

-- Puts ungrouped messages, held by nobody, at the tail of what is ready or among what is scheduled.
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._place }}
    @ids nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @due TABLE (
        place int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        id bigint NOT NULL,
        expires_at datetime2(6),
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL
    );
    {{ groups.ticket_tables() }}

    INSERT INTO @wanted (id)
    {{ arguments.ids_of("@ids") }};

    INSERT INTO @due (lane, id, expires_at, topic_key)
    SELECT 0 - m.priority, m.id, m.expires_at, m.topic + N'.'
    FROM @wanted AS w
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = w.id
    WHERE m.due_at IS NULL OR m.due_at <= @now_at
    ORDER BY m.id
    OPTION (KEEPFIXED PLAN);

    {{ groups.draw_tickets("@due") }}

    INSERT INTO {{ box.ready }} (lane, ticket, id, expires_at, topic_key)
    SELECT d.lane, t.ticket, d.id, d.expires_at, d.topic_key
    FROM @due AS d
    INNER JOIN @ticket AS t ON t.place = d.place
    OPTION (KEEPFIXED PLAN);

    INSERT INTO {{ box.scheduled }} (due_at, no, id, expires_at, lane, topic_key)
    SELECT m.due_at, m.id AS no, m.id, m.expires_at, 0 - m.priority, m.topic + N'.'
    FROM @wanted AS w
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = w.id
    WHERE m.due_at > @now_at
    OPTION (KEEPFIXED PLAN);
END;
