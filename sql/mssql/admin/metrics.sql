{% import "macros/arguments.sql" as arguments with context %}

-- What monitoring asks of a deployment, every box in one call: the figures of stats, what was given up and since when,
-- leases that have run out, groups that their head holds up, and when upkeep was done.
-- Done messages are not counted, so the cost is that of what is waiting or dead. dead counts what expired or was
-- cancelled too, given_up does not, nor does oldest_dead_seconds. Of FIFO groups those of the oldest ten thousand waiting
-- members are looked at. upkeep_seconds goes by when somebody
-- last cleaned up, reap_seconds by when somebody last took back leases; before the first time by when the box was made.
-- returns: box, topic, ready, scheduled, in_flight, done, dead, given_up, expired_leases, oldest_ready_seconds, oldest_dead_seconds, blocked_groups, longest_blocked_seconds, upkeep_seconds, reap_seconds; by box and topic, each box's total last, with a null topic; the last four only there
-- errors: none
-- locks: none
-- role: worker, viewer
CREATE OR ALTER PROCEDURE {{ db.metrics }}
AS
BEGIN
    {{ arguments.begin() }}

    CREATE TABLE #pysqlbox_metrics (
        no int IDENTITY (1, 1) NOT NULL PRIMARY KEY,
        box nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
        topic nvarchar(255) COLLATE Latin1_General_100_BIN2,
        ready bigint NOT NULL,
        scheduled bigint NOT NULL,
        in_flight bigint NOT NULL,
        done bigint NOT NULL,
        dead bigint NOT NULL,
        given_up bigint NOT NULL,
        expired_leases bigint NOT NULL,
        oldest_ready_seconds float,
        oldest_dead_seconds float,
        blocked_groups bigint,
        longest_blocked_seconds float,
        upkeep_seconds float,
        reap_seconds float
    );

    -- Each by its name, so that a new box makes this anew: Babelfish has no EXEC of a variable, and a statement as text would
    -- run with the caller's own rights.
{% for each in boxes | sort(attribute="name") %}
    EXEC {{ (schema | ident) ~ "." ~ (("_" ~ each.name ~ "_metrics") | ident) }};
{% endfor %}

    SELECT
        m.box, m.topic, m.ready, m.scheduled, m.in_flight, m.done, m.dead, m.given_up, m.expired_leases,
        m.oldest_ready_seconds, m.oldest_dead_seconds, m.blocked_groups, m.longest_blocked_seconds, m.upkeep_seconds,
        m.reap_seconds
    FROM #pysqlbox_metrics AS m
    ORDER BY m.no;
END;
