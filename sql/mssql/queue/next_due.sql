{% import "macros/arguments.sql" as arguments with context %}

-- When the box next wants somebody's attention that nothing else will tell of: the earliest due time of what waits
-- for one, or the earliest end of a lease. What is claimable already does not count. A time in the past counts as long
-- as no claim or reap has seen to it. A few rows of two indexes are read; nobody waits and nothing is written.
{% if box_name == "outbox" %}
-- Joins that wait to be looked at count, and a parked join.wait message by its hour.
{% endif %}
-- returns: due_at; null if there is none
-- errors: none
-- locks: none
-- role: worker, viewer
CREATE OR ALTER PROCEDURE {{ box.next_due }}
AS
BEGIN
    {{ arguments.begin() }}

    -- No time is before year 1: saying so makes the head of each index a seek.
    SELECT MIN(n.due_at) AS due_at
    FROM (
        SELECT MIN(s.due_at) AS due_at
        FROM {{ box.scheduled }} AS s WITH (FORCESEEK)
        WHERE s.due_at >= CONVERT(datetime2(6), '0001-01-01')
        UNION ALL
        SELECT MIN(l.locked_until)
        FROM {{ box.lease }} AS l WITH (FORCESEEK ({{ key.ix_lease_expiry }} (locked_until)))
        WHERE l.locked_until >= CONVERT(datetime2(6), '0001-01-01')
    ) AS n
    OPTION (KEEPFIXED PLAN);
END;
