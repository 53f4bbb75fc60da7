{% import "macros/doctor.sql" as doctor with context %}
{% set schema_subject = "'schema ' || " ~ (schema | literal) %}
CREATE OR REPLACE FUNCTION {{ db._join_doctor }}()
{{ doctor.result() }}
SET enable_seqscan = off
AS $$
    -- Joins that have not moved for an hour, and those whose steps are over and which nobody resolves. The oldest thousand
    -- of those that wait are looked at, and the oldest ten of these shown.
    -- returns: check, level, subject, detail, advice
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    now_at CONSTANT timestamptz := {{ db._now }}();
BEGIN
    {% call doctor.look("joins", schema_subject, "none is stuck") %}
            SELECT
                CASE WHEN j.is_over OR j.moved_at < now_at - interval '1 day' THEN 'warning' ELSE 'note' END,
                'join ' || j.join_id,
                format(
                    '%s; it has not moved for %s; %s',
                    CASE
                        WHEN j.is_over AND j.wait_message_id IS NULL THEN 'all its steps are over, but nobody has called join_wait'
                        WHEN j.is_over THEN 'all its steps are over, but nobody works on its join.wait message'
                        WHEN j.expected_steps IS NULL THEN format('it is open, %s attached, and nobody has called join_wait', {{ doctor.counted("j.attached", "step is", "steps are") }})
                        WHEN j.attached < j.expected_steps THEN format('only %s of its %s attached', j.attached, {{ doctor.counted("j.expected_steps", "step is", "steps are") }})
                        ELSE format('%s of its %s over', j.over, {{ doctor.counted("j.expected_steps", "step is", "steps are") }})
                    END,
                    {{ doctor.lasting("now_at - j.moved_at") }},
                    CASE WHEN count(*) OVER () = 1 THEN 'the only one that is stuck' ELSE format('one of %s that are stuck', count(*) OVER ()) END
                ),
                CASE
                    WHEN j.is_over AND j.wait_message_id IS NULL
                        THEN format('SELECT * FROM %I.join_wait(%L, …);', {{ schema | literal }}, j.join_id)
                    WHEN j.is_over THEN format('SELECT * FROM %I.join_resolve(%L);', {{ schema | literal }}, j.join_id)
                    ELSE format(
                        'SELECT * FROM %1$I.outbox_join_members WHERE join_id = %2$L; -- or give it up: SELECT * FROM %1$I.join_cancel(%2$L);',
                        {{ schema | literal }}, j.join_id
                    )
                END
            FROM (
                SELECT
                    p.no, v.join_id, v.expected_steps, v.wait_message_id, v.last_updated_at AS moved_at,
                    v.completed_steps + v.failed_steps AS over,
                    v.completed_steps + v.failed_steps >= v.expected_steps IS TRUE AS is_over,
                    coalesce((
                        SELECT jm.no FROM {{ db.join_member }} AS jm WHERE jm.join_id = p.join_id ORDER BY jm.no DESC LIMIT 1
                    ), 0) AS attached
                FROM (
                    SELECT w.no, w.join_id, w.created_at
                    FROM {{ db.join }} AS w
                    WHERE w.status = 'Pending'
                    ORDER BY w.status, w.no
                    LIMIT 1000
                ) AS p
                CROSS JOIN LATERAL (
                    SELECT o.* FROM {{ db.outbox_joins }} AS o WHERE o.join_id = p.join_id OFFSET 0
                ) AS v
                WHERE p.created_at < now_at - interval '5 minutes'
            ) AS j
            WHERE j.moved_at < now_at - CASE WHEN j.is_over THEN interval '5 minutes' ELSE interval '1 hour' END
            ORDER BY j.no
            LIMIT 10
    {% endcall %};
END;
$$;
