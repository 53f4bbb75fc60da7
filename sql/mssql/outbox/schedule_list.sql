{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/schedules.sql" as schedules with context %}

-- Every schedule of the box, also those that are not enabled.
-- returns: name, topic, cron, every_seconds, timezone, next_at, last_fired_at, catch_up, enabled, group_id, priority; by name
-- errors: none
-- locks: none
-- role: viewer
CREATE OR ALTER PROCEDURE {{ box.schedule_list }}
AS
BEGIN
    {{ arguments.begin() }}

    SELECT
        {{ schedules.columns() }}
    FROM {{ box.schedules }} AS s
    ORDER BY s.schedule_key;
END;
