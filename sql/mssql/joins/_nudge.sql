{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Has the next claim look at a join.
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._join_nudge }}
    @join_id uniqueidentifier
AS
BEGIN
    {{ arguments.begin() }}

    INSERT INTO {{ db.outbox_scheduled }} (due_at, no, lane, topic_key, join_id)
    VALUES ({{ clock.now() }}, NEXT VALUE FOR {{ db._outbox_ids }}, 0, N'.', @join_id);
END;
