{% import "macros/queue.sql" as queue with context %}
{# The pages of a table that are this patrol's: the whole of a small one. #}
{% macro pages_of(table) %}
size := greatest(1, pg_relation_size({{ table | literal }}) / current_setting('block_size')::bigint);
    from_page := CASE WHEN size <= pages THEN 0 ELSE at_page % size END;
    from_row := ('(' || from_page || ',0)')::tid;
    to_row := ('(' || least(from_page + pages, 4294967295) || ',0)')::tid
{%- endmacro %}
{% macro lower(mark, found) %}
IF {{ found }} < {{ queue.mark(mark) }} THEN
        PERFORM setval({{ mark | literal }}, {{ found }});
    END IF
{%- endmacro %}
CREATE OR REPLACE FUNCTION {{ box._patrol }}(pages integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    -- Looks whether low marks are too high, and lowers those that are: after a dump was restored, whose sequences are
    -- younger than its rows; after the clock was set back; for leases that were committed after their time. It reads the
    -- next few pages of each table and never more, so its cost grows neither with what is there nor with dead rows, and
    -- whoever is patient has seen everything in the end. A minimum that stands alone is taken of a subquery: for that of a
    -- table's own column the planner would walk an index until it meets one of those pages.
    -- pages: of each table
    -- returns: none
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    at_page CONSTANT bigint := {{ queue.mark(box._patrolled) }};
    size bigint;
    from_page bigint;
    from_row tid;
    to_row tid;
    low_grouped bigint;
    groups text[];
    found bigint;
    found_above bigint;
    found_below bigint;
BEGIN
    PERFORM setval({{ box._patrolled | literal }}, at_page + pages);

    {{ pages_of(box.ready) }};
    SELECT min(r.ticket) FILTER (WHERE r.lane = 0), min(r.ticket) FILTER (WHERE r.lane < 0), min(r.ticket) FILTER (WHERE r.lane > 0)
    INTO found, found_above, found_below
    FROM {{ box.ready }} AS r
    WHERE r.ctid >= from_row AND r.ctid < to_row;
    IF found < {{ queue.mark(box._low_sure) }} THEN
        PERFORM
            setval({{ box._low_sure | literal }}, found), setval({{ box._low_ticket | literal }}, found),
            setval({{ box._low_open | literal }}, 0);
    END IF;
    {{ lower(box._low_above, "found_above") }};
    {{ lower(box._low_below, "found_below") }};

    {{ pages_of(box.scheduled) }};
    SELECT (extract(epoch FROM min(page.due_at)) * 1000000)::bigint INTO found
    FROM (
        SELECT s.due_at FROM {{ box.scheduled }} AS s
        WHERE s.ctid >= from_row AND s.ctid < to_row AND s.due_at < 'infinity'
        OFFSET 0
    ) AS page;
    {{ lower(box._low_due, "found") }};

    {{ pages_of(box.lease) }};
    SELECT (extract(epoch FROM min(l.locked_until)) * 1000000)::bigint, min(l.id) FILTER (WHERE l.group_id IS NOT NULL)
    INTO found, found_below
    FROM {{ box.lease }} AS l
    WHERE l.ctid >= from_row AND l.ctid < to_row;
    {{ lower(box._low_lease, "found") }};
    {{ lower(box._low_grouped, "found_below") }};

    {{ pages_of(box.group_member) }};
    low_grouped := {{ queue.mark(box._low_grouped) }};
    SELECT min(gm.id), array_agg(DISTINCT gm.group_id) FILTER (WHERE gm.id < low_grouped)
    INTO found, groups
    FROM {{ box.group_member }} AS gm
    WHERE gm.ctid >= from_row AND gm.ctid < to_row;
    {{ lower(box._low_grouped, "found") }};
    IF groups IS NOT NULL THEN
        -- Somebody may have taken them for groups without members.
        PERFORM {{ box._probe }}(groups);
    END IF;

    {{ pages_of(box.tally) }};
    SELECT min(page.no) INTO found
    FROM (SELECT t.no FROM {{ box.tally }} AS t WHERE t.ctid >= from_row AND t.ctid < to_row OFFSET 0) AS page;
    {{ lower(box._low_tally, "found") }};

    {{ pages_of(box.done) }};
    SELECT (extract(epoch FROM min(page.processed_at)) * 1000000)::bigint INTO found
    FROM (SELECT n.processed_at FROM {{ box.done }} AS n WHERE n.ctid >= from_row AND n.ctid < to_row OFFSET 0) AS page;
    {{ lower(box._low_done, "found") }};
END;
$$;
