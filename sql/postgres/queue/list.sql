{% import "macros/listing.sql" as listing with context %}
CREATE OR REPLACE FUNCTION {{ box.list }}(
    OUT id bigint,
{% if kind == "inbox" %}
    OUT message_id text,
    OUT source text,
    INOUT status text,
    INOUT topic text DEFAULT NULL,
{% else %}
    OUT message_id uuid,
    INOUT status text,
    INOUT topic text DEFAULT NULL,
    OUT correlation_id text,
{% endif %}
    "limit" integer DEFAULT 100,
    after_id bigint DEFAULT 0,
    INOUT group_id text DEFAULT NULL,
    OUT priority smallint,
{% if kind == "outbox" %}
    OUT dedup_key text,
{% endif %}
    OUT collapse_key text,
    OUT attempt integer,
{% if kind == "inbox" %}
    OUT first_seen_at timestamptz,
    OUT last_seen_at timestamptz,
{% else %}
    OUT created_at timestamptz,
{% endif %}
    OUT due_at timestamptz,
    OUT expires_at timestamptz,
    OUT last_error text,
    OUT owner_token uuid,
    OUT locked_until timestamptz,
    OUT processed_at timestamptz,
    OUT processed_by uuid,
    OUT died_at timestamptz
)
RETURNS SETOF record
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Messages in one status, a page at a time, without payloads and headers.
    -- A page is read in id order from where such messages are, and costs what it shows, however long the history is. One
    -- that has looked at 10000 of them and is not full ends with a row that has an id and nothing else: the next page
    -- goes on behind it.
{% if kind == "inbox" %}
    -- status: Seen, Processing, Done, Dead, Expired or Cancelled
{% else %}
    -- status: Ready, InProgress, Done, Failed, Expired or Cancelled
{% endif %}
    -- topic: only this one; null for all
    -- limit: from 1 to 10000
    -- after_id: the last id of the page before
    -- group_id: only this one's; null for all
{% if kind == "inbox" %}
    -- returns: id, message_id, source, status, topic, group_id, priority, collapse_key, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at; in id order
{% else %}
    -- returns: id, message_id, status, topic, correlation_id, group_id, priority, dedup_key, collapse_key, attempt, created_at, due_at, expires_at, last_error, owner_token, locked_until, processed_at, processed_by, died_at; in id order
{% endif %}
    -- errors: PB001
    -- locks: none
    -- role: viewer
DECLARE
    wanted CONSTANT text := status;
    only_topic CONSTANT text := topic;
    only_group CONSTANT text := group_id;
    after_at bigint := least(greatest(coalesce(after_id, 0), 0), 9223372036854770000);
    lanes integer[];
    found bigint[];
    seen integer;
    last_no bigint;
    shown integer := 0;
    now_shown integer;
    looked integer := 0;
    room integer;
    step integer := "limit";
BEGIN
{% if kind == "inbox" %}
    IF status IS NULL OR status NOT IN ('Seen', 'Processing', 'Done', 'Dead', 'Expired', 'Cancelled') THEN
        PERFORM {{ db._reject }}('status', 'must be Seen, Processing, Done, Dead, Expired or Cancelled');
{% else %}
    IF status IS NULL OR status NOT IN ('Ready', 'InProgress', 'Done', 'Failed', 'Expired', 'Cancelled') THEN
        PERFORM {{ db._reject }}('status', 'must be Ready, InProgress, Done, Failed, Expired or Cancelled');
{% endif %}
    ELSIF "limit" IS NULL OR "limit" NOT BETWEEN 1 AND 10000 THEN
        PERFORM {{ db._reject }}('limit', 'must be from 1 to 10000');
    END IF;
    lanes := ARRAY(SELECT 0 UNION SELECT n.lane FROM {{ box.lane }} AS n);
    -- All of it under the snapshot of the query that calls this.
    LOOP
        room := least(step, 10000 - looked);
        IF wanted = 'Done' THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
            {{ listing.done() }}
            ) AS c;
{% if kind == "inbox" %}
        ELSIF wanted = 'Seen' THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
                {{ listing.seen() }}
            ) AS c;
        ELSIF wanted = 'Processing' AND only_group IS NOT NULL THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
                SELECT w.no, w.id
                FROM (
                    ({{ listing.group_members() }})
                    UNION ALL
                    ({{ listing.group_leases() }})
                ) AS w
                ORDER BY w.no
                LIMIT room
            ) AS c;
        ELSIF wanted = 'Processing' AND only_topic IS NOT NULL THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
            {{ listing.waiting(true) }}
            ) AS c;
        ELSIF wanted = 'Processing' THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
            {{ listing.waiting(false) }}
            ) AS c;
{% else %}
        ELSIF wanted = 'Ready' AND only_group IS NOT NULL THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
                {{ listing.group_members() }}
            ) AS c;
        ELSIF wanted = 'Ready' AND only_topic IS NOT NULL THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
            {{ listing.waiting(true) }}
            ) AS c;
        ELSIF wanted = 'Ready' THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
            {{ listing.waiting(false) }}
            ) AS c;
        ELSIF wanted = 'InProgress' AND only_group IS NOT NULL THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
                {{ listing.group_leases() }}
            ) AS c;
        ELSIF wanted = 'InProgress' THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
                {{ listing.in_order(box.lease) }}
            ) AS c;
{% endif %}
        ELSIF only_topic IS NOT NULL THEN
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
                {{ listing.dead(true) }}
            ) AS c;
        ELSE
            SELECT array_agg(c.id), count(*), max(c.no) INTO found, seen, last_no FROM (
                {{ listing.dead(false) }}
            ) AS c;
        END IF;

        -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
        RETURN QUERY
        SELECT
{% if kind == "inbox" %}
            v.id, v.message_id, v.source, v.status, v.topic, v.group_id, v.priority, v.collapse_key, v.attempt,
            v.first_seen_at, v.last_seen_at, v.due_at, v.expires_at, v.last_error, v.owner_token, v.locked_until,
            v.processed_at, v.processed_by, v.died_at
{% else %}
            v.id, v.message_id, v.status, v.topic, v.correlation_id, v.group_id, v.priority, v.dedup_key,
            v.collapse_key, v.attempt, v.created_at, v.due_at, v.expires_at, v.last_error, v.owner_token,
            v.locked_until, v.processed_at, v.processed_by, v.died_at
{% endif %}
        FROM (
            SELECT m.id
            FROM unnest(found) AS u (id)
            CROSS JOIN LATERAL (
                SELECT w.id
                FROM {{ box.message }} AS w
                WHERE w.id = u.id
                    AND (only_topic IS NULL OR w.topic = only_topic)
                    AND (only_group IS NULL OR w.group_id = only_group)
                OFFSET 0
            ) AS m
            ORDER BY m.id
            LIMIT "limit" - shown
        ) AS page
        CROSS JOIN LATERAL (SELECT x.* FROM {{ box.messages }} AS x WHERE x.id = page.id OFFSET 0) AS v
        ORDER BY page.id;

        GET DIAGNOSTICS now_shown = ROW_COUNT;
        shown := shown + now_shown;
        EXIT WHEN shown = "limit" OR seen < room;
        looked := looked + room;
        after_at := last_no;
        IF looked = 10000 THEN
            id := after_at;
            status := NULL;
            topic := NULL;
            group_id := NULL;
            RETURN NEXT;
            EXIT;
        END IF;
        step := step * 2;
    END LOOP;
END;
$$;
