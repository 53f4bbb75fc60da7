CREATE OR REPLACE FUNCTION {{ db.metrics }}()
RETURNS TABLE (
    box text,
    topic text,
    ready bigint,
    scheduled bigint,
    in_flight bigint,
    done bigint,
    dead bigint,
    given_up bigint,
    expired_leases bigint,
    oldest_ready_seconds double precision,
    oldest_dead_seconds double precision,
    blocked_groups bigint,
    longest_blocked_seconds double precision,
    upkeep_seconds double precision,
    reap_seconds double precision
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
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
BEGIN
{% for each in boxes | sort(attribute="name") %}
    RETURN QUERY SELECT m.* FROM {{ (schema | ident) ~ "." ~ (("_" ~ each.name ~ "_metrics") | ident) }}() AS m;
{% endfor %}
END;
$$;
