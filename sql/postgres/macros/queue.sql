{# Passages that several routines of a box share. #}
{% macro touch() %}
-- From here on this transaction shows in pg_locks as one that may bring numbers and times of now: the low marks wait
    -- for it. So the xid comes before this, and the clock is read after it.
    PERFORM pg_current_xact_id(), pg_sequence_last_value({{ box._ids | literal }})
{%- endmacro %}
{# Whether a message is done: no run is longer than 1000 and none overlaps another, so one probe tells. #}
{% macro is_done(id, done=none) %}
EXISTS (
        SELECT FROM (
            SELECT n.id + n.span AS next_id FROM {{ done or box.done }} AS n
            WHERE n.id <= {{ id }} AND n.id > {{ id }} - 1000
            ORDER BY n.id DESC
            LIMIT 1
        ) AS run
        WHERE run.next_id > {{ id }}
    )
{%- endmacro %}
{#
  Messages of these rows' topics have become dead, or with a minus are so no more: noted in the tally by the statement that
  moves them. Dead ones that were never enqueued have no topic and are not counted.
#}
{% macro count_dead(rows, sign="") %}
INSERT INTO {{ box.tally }} (no, topic, done, dead)
        SELECT nextval({{ box._ids | literal }}), t.topic, 0, {{ sign }}t.dead
        FROM (SELECT d.topic, count(*) AS dead FROM {{ rows }} AS d WHERE d.topic IS NOT NULL GROUP BY d.topic) AS t
{%- endmacro %}
{# A hint to listeners. #}
{% macro notify() %}
-- A hint to listeners, at most one in 20 milliseconds: NOTIFY makes commits queue up behind one another.
    IF coalesce(pg_sequence_last_value({{ box._notified | literal }}), 0) < date_part('epoch', now_at) * 1000 THEN
        PERFORM setval({{ box._notified | literal }}, (date_part('epoch', now_at) * 1000)::bigint + 20);
        PERFORM pg_notify({{ (schema ~ "." ~ box_name) | literal }}, '');
    END IF
{%- endmacro %}
{% macro notify_next() %}
-- The next enqueue notifies, however short ago the last one did.
        IF pg_sequence_last_value({{ box._notified | literal }}) BETWEEN 1 AND 8000000000000000000 THEN
            PERFORM setval({{ box._notified | literal }}, 0);
        END IF
{%- endmacro %}
{# The name of a setting that a session has for itself and this box. #}
{% macro own_setting(what) %}
{{ ("pysqlbox." ~ what ~ "_") | literal }} || {{ box.ready | literal }}::regclass::oid
{%- endmacro %}
{#
  Marks and flags are this server's own: a dump carries them along, younger than its rows. Whoever trusts one asks first,
  once in a session.
#}
{% macro arrive() %}
IF current_setting({{ own_setting("home") }}, true) IS DISTINCT FROM 'here' THEN
        PERFORM {{ box._arrive }}();
    END IF
{%- endmacro %}
{# What a mark says, without a query; a mark that never moved says 0. #}
{% macro mark(sequence) %}
coalesce(pg_sequence_last_value({{ sequence | literal }}), 0)
{%- endmacro %}
{% macro time_mark(sequence) %}
to_timestamp({{ mark(sequence) }} / 1000000.0)
{%- endmacro %}
{# Whether a group is held: no lease of a group has an id below the mark. Written as in the index that is meant. #}
{% macro is_held(group_id) %}
EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.group_id = {{ group_id }} AND l.id + 0 >= low_grouped OFFSET 0)
{%- endmacro %}
{#
  Messages of an inbox, locked in the order of their keys, like a batch enqueue that renews them. Each is looked up in a
  subquery of its own, whatever the planner knew of the table when it made the plan.
#}
{% macro lock_in_key_order(ids) %}
PERFORM FROM (
            SELECT k.id
            FROM unnest({{ ids }}) AS u (id)
            CROSS JOIN LATERAL (
                SELECT w.id, w.source, w.message_id FROM {{ box.message }} AS w WHERE w.id = u.id OFFSET 0
            ) AS k
            ORDER BY k.source, k.message_id
        ) AS o
        CROSS JOIN LATERAL (SELECT FROM {{ box.message }} AS m WHERE m.id = o.id FOR UPDATE) AS l
{%- endmacro %}
{# 15 bits that tell one set of paused topics from another, and the mark that belongs to them, or 0. #}
{% macro paused_bits(topics) %}
hashtextextended(array_to_string({{ topics }}, chr(1)), 0) & 32767
{%- endmacro %}
{% macro low_open(bits) %}
CASE WHEN {{ mark(box._low_open) }} & 32767 = {{ bits }} THEN {{ mark(box._low_open) }} / 32768 ELSE 0 END
{%- endmacro %}
{# What is over need not be collapsed any more. What an enqueue of the key has just locked it takes away itself. #}
{% macro forget_collapse(keys, ids) %}
IF {{ keys }} IS NOT NULL THEN
            DELETE FROM {{ box.collapse }} AS c
            WHERE c.ctid = ANY (ARRAY(
                SELECT f.ctid
                FROM unnest({{ keys }}, {{ ids }}) AS k (collapse_key, id)
                CROSS JOIN LATERAL (
                    SELECT o.ctid
                    FROM {{ box.collapse }} AS o
                    WHERE o.collapse_key = k.collapse_key AND o.id = k.id
                    FOR UPDATE SKIP LOCKED
                ) AS f
            ));
        END IF
{%- endmacro %}
{# The lanes of these messages become known to claims; lane 0 always is. Nobody waits, and a lane entered twice is no harm. #}
{% macro enter_lanes() %}
INSERT INTO {{ box.lane }} (lane)
    SELECT DISTINCT 0 - m.priority
    FROM {{ box.message }} AS m
    WHERE m.id = ANY (ids)
        AND m.priority <> 0
        AND NOT EXISTS (SELECT FROM {{ box.lane }} AS n WHERE n.lane = 0 - m.priority);
    IF FOUND THEN
        PERFORM setval({{ box._special | literal }}, 1);
    END IF
{%- endmacro %}
{% macro enter_lane(level) %}
IF {{ level }} <> 0 THEN
        INSERT INTO {{ box.lane }} (lane)
        SELECT -{{ level }} WHERE NOT EXISTS (SELECT FROM {{ box.lane }} AS n WHERE n.lane = -{{ level }});
        IF FOUND THEN
            PERFORM setval({{ box._special | literal }}, 1);
        END IF;
    END IF
{%- endmacro %}
{#
  Messages that become members of groups again without having been leased, the first of them this one: no tick may
  leave them behind. One that does not see this has to begin anew.
#}
{% macro come_back(first_id) %}
PERFORM nextval({{ box._comebacks | literal }});
    IF {{ first_id }} < {{ mark(box._low_grouped) }} THEN
        PERFORM setval({{ box._low_grouped | literal }}, {{ first_id }});
    END IF
{%- endmacro %}
{# That upkeep was done, for doctor and metrics; nobody waits for it, and a rollback leaves it. #}
{% macro note_upkeep(sequence) %}
PERFORM setval({{ sequence | literal }}, (extract(epoch FROM {{ db._now }}()) * 1000000)::bigint)
{%- endmacro %}
{# When it was done last, or null. #}
{% macro upkeep_at(sequence) %}
nullif({{ mark(sequence) }}, 0) * interval '1 microsecond' + 'epoch'::timestamptz
{%- endmacro %}
