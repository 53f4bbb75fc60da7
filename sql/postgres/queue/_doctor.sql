{% import "macros/doctor.sql" as doctor with context %}
{% import "macros/queue.sql" as queue with context %}
{% set subject = "'box ' || " ~ (box_name | literal) %}
{% set came_at = "first_seen_at" if kind == "inbox" else "created_at" %}
CREATE OR REPLACE FUNCTION {{ box._doctor }}()
{{ doctor.result() }}
SET enable_seqscan = off
AS $$
    -- What is wrong with one box: what nobody claims, extends, resumes, replays or cleans up. Reads the ends of indexes and
    -- bounded pieces of them, from the low marks on, and never counts a table; writes nothing, not even a mark.
    -- returns: check, level, subject, detail, advice
    -- errors: none
    -- locks: none
    -- role: internal
DECLARE
    now_at CONSTANT timestamptz := {{ db._now }}();
    -- All reads begin at a mark, or at a time, behind which a held snapshot keeps little that is gone.
    -- Elsewhere, in a restored dump for one, the marks are not to be trusted before a claim has been here.
    is_home boolean := false;
    low_lease timestamptz := '-infinity'::timestamptz;
    low_due timestamptz := '-infinity'::timestamptz;
    low_done timestamptz := '-infinity'::timestamptz;
    low_grouped bigint := 0::bigint;
    paused text[];
    -- Whether somebody works here now; and whether somebody has within five minutes.
    is_manned boolean;
    is_served boolean;
    cleaned_at timestamptz;
    -- Whether somebody cleans up: once a day is enough, and may be two hours late.
    is_kept boolean;
BEGIN
    BEGIN
        is_home := {{ queue.mark(box._home) }} = (
            SELECT hashint8extended(c.system_identifier, {{ box.ready | literal }}::regclass::oid::bigint) & 9223372036854775807
            FROM pg_control_system() AS c
        );
        IF is_home THEN
            low_lease := {{ queue.time_mark(box._low_lease) }};
            low_lease := CASE
                WHEN low_lease > now_at THEN '-infinity'
                ELSE least(
                    low_lease - interval '2 seconds',
                    nullif({{ queue.mark(box._left_lease) }}, 0) * interval '1 microsecond' + 'epoch'::timestamptz
                )
            END;
            low_due := {{ queue.time_mark(box._low_due) }};
            low_done := {{ queue.time_mark(box._low_done) }};
            low_grouped := {{ queue.mark(box._low_grouped) }};
        END IF;
        paused := ARRAY(SELECT p.topic FROM {{ box.paused }} AS p);
        cleaned_at := {{ queue.upkeep_at(box._cleaned) }};
        is_kept := coalesce(cleaned_at > now_at - interval '26 hours', false);
        is_manned :=
            EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.locked_until > now_at)
            OR EXISTS (
                SELECT FROM {{ db.worker }} AS w
                WHERE w.seen_at > now_at - interval '2 minutes' AND {{ box_name | literal }} = ANY (w.boxes)
            );
        is_served :=
            is_manned
            OR EXISTS (
                SELECT FROM (
                    SELECT x.processed_by
                    FROM {{ box.done }} AS x
                    WHERE x.processed_at > now_at - interval '5 minutes'
                    ORDER BY x.processed_at DESC
                    LIMIT 100
                ) AS n
                WHERE n.processed_by IS NOT NULL
            );
    EXCEPTION
        WHEN {{ doctor.blind() }} THEN
            RETURN QUERY
            SELECT
                'box', 'unknown', {{ subject }}, 'it could not be looked at: ' || SQLERRM,
                'Call it as the owner of the schema, or as a superuser.';
            RETURN;
    END;

    {% call doctor.look("indexes", subject, "none is missing") %}
            {% call doctor.missing_of() %}
                {{ doctor.constraint(box.message, key.pk_message, "PRIMARY KEY (id)") }},
{% if kind == "inbox" %}
                {{ doctor.constraint(box.message, key.uq_message_key, "UNIQUE (source, message_id)") }},
                {{ doctor.constraint(box.seen, key.pk_seen, "PRIMARY KEY (id)") }},
{% else %}
                {{ doctor.index(box.message, key.uq_message_message_id, "(message_id) WHERE is_given", "UNIQUE ") }},
                {{ doctor.constraint(box.dedup, key.pk_dedup, "PRIMARY KEY (dedup_key)") }},
                {{ doctor.index(box.dedup, key.ix_dedup_age, "(seen_at)") }},
                {{ doctor.constraint(box.schedules, key.pk_schedules, "PRIMARY KEY (name)") }},
                {{ doctor.index(box.schedules, key.ix_schedules_next, "(next_at, name) WHERE enabled") }},
{% endif %}
                {{ doctor.constraint(box.ready, key.pk_ready, "PRIMARY KEY (lane, ticket)") }},
                {{ doctor.index(box.ready, key.ix_ready_topic, "(topic, lane, ticket)") }},
                {{ doctor.index(box.ready, key.ix_ready_returned, "(id) WHERE ticket <> id") }},
                {{ doctor.constraint(box.scheduled, key.pk_scheduled, "PRIMARY KEY (due_at, no)") }},
                {{ doctor.index(box.scheduled, key.ix_scheduled_id, "(id) WHERE id IS NOT NULL") }},
                {{ doctor.constraint(box.group, key.pk_group, "PRIMARY KEY (group_id)") }},
                {{ doctor.constraint(box.group_member, key.pk_group_member, "PRIMARY KEY (group_id, id)") }},
                {{ doctor.index(box.group_member, key.ix_group_member_id, "(id) WHERE id > 0") }},
                {{ doctor.constraint(box.lease, key.pk_lease, "PRIMARY KEY (id)") }},
                {{ doctor.index(box.lease, key.ix_lease_expiry, "(locked_until)") }},
                {{ doctor.index(box.lease, key.ix_lease_group, "(group_id, (id + 0)) WHERE group_id IS NOT NULL") }},
                {{ doctor.index(box.lease, key.ix_lease_grouped, "((id + 0)) WHERE group_id IS NOT NULL AND id > 0") }},
                {{ doctor.constraint(box.done, key.pk_done, "PRIMARY KEY (id)") }},
                {{ doctor.index(box.done, key.ix_done_age, "(processed_at)") }},
                {{ doctor.constraint(box.dead, key.pk_dead, "PRIMARY KEY (id)") }},
                {{ doctor.index(box.dead, key.ix_dead_topic, "(topic, id)") }},
                {{ doctor.index(box.dead, key.ix_dead_age, "(died_at)") }},
                {{ doctor.constraint(box.collapse, key.pk_collapse, "PRIMARY KEY (collapse_key, id)") }},
                {{ doctor.constraint(box.tally, key.pk_tally, "PRIMARY KEY (no)") }},
                {{ doctor.constraint(box.paused, key.pk_paused, "PRIMARY KEY (topic)") }},
                {{ doctor.constraint(box.settings, key.pk_settings, "PRIMARY KEY (name)") }}
            {% endcall %}
    {% endcall %};

    {% call doctor.look("leases", subject, "none has run out that nobody has taken back") %}
            SELECT
                CASE WHEN e.first_at < now_at - interval '10 minutes' THEN 'error' ELSE 'warning' END, {{ subject }},
                format(
                    '%s%s %s ago, of message %s, owner %s', CASE WHEN e.leases = 1000 THEN 'at least ' END,
                    {{ doctor.counted("e.leases", "lease has run out and nobody takes it back,", "leases have run out and nobody takes them back; the first") }},
                    {{ doctor.lasting("now_at - e.first_at") }},
                    e.first_id, e.first_owner
                ),
                format('SELECT * FROM %s(1000); -- any claim does it too', {{ box.reap | literal }})
            FROM (
                SELECT
                    count(*) AS leases, min(l.locked_until) AS first_at,
                    (array_agg(l.id ORDER BY l.locked_until))[1] AS first_id,
                    (array_agg(l.owner_token ORDER BY l.locked_until))[1] AS first_owner
                FROM (
                    SELECT x.id, x.owner_token, x.locked_until
                    FROM {{ box.lease }} AS x
                    WHERE x.locked_until >= low_lease AND x.locked_until < now_at - interval '1 minute'
                    ORDER BY x.locked_until
                    LIMIT 1000
                ) AS l
            ) AS e
            WHERE e.leases > 0
    {% endcall %};

    -- The heads of the lanes, behind what is paused; a group's ticket stands for its first member.
    {% call doctor.look("unclaimed", subject, "nothing waits long to be claimed") %}
            SELECT
                CASE
                    WHEN is_served AND h.since > now_at - interval '1 hour' THEN 'note'
                    WHEN is_served OR h.since > now_at - interval '1 hour' THEN 'warning'
                    ELSE 'error'
                END,
                {{ subject }} || ', topic ' || h.topic,
                format(
                    'message %s waits for %s; %s', h.id, {{ doctor.lasting("now_at - h.since") }},
                    CASE
                        WHEN NOT is_served
                            THEN 'nobody has claimed or settled anything for five minutes' || coalesce(
                                (
                                    SELECT format(
                                        '; the worker seen last, %s on %s, was here %s ago',
                                        w.name, w.host, {{ doctor.lasting("now_at - w.seen_at") }}
                                    )
                                    FROM {{ db.worker }} AS w
                                    WHERE {{ box_name | literal }} = ANY (w.boxes)
                                    ORDER BY w.seen_at DESC
                                    LIMIT 1
                                ), ''
                            )
                        WHEN (
                            SELECT NOT bool_or(w.topics IS NULL OR h.topic = ANY (w.topics))
                            FROM {{ db.worker }} AS w
                            WHERE w.seen_at > now_at - interval '2 minutes' AND {{ box_name | literal }} = ANY (w.boxes)
                        ) THEN 'somebody works here, but none of the workers that say who they are handles this topic'
                        ELSE 'somebody works here, but cannot keep up or does not take this topic'
                    END
                ),
                format('Start a worker, or more of them, that serve this topic; SELECT * FROM %s(); counts.', {{ box.stats | literal }})
            FROM (
                SELECT m.id, m.topic, greatest(m.due_at, m.{{ came_at }}) AS since
                FROM (
                    SELECT 0 AS lane, CASE WHEN is_home THEN {{ queue.mark(box._low_ticket) }} ELSE 0 END AS low
                    UNION
                    SELECT
                        n.lane,
                        CASE
                            WHEN NOT is_home THEN 0
                            WHEN n.lane < 0 THEN {{ queue.mark(box._low_above) }}
                            ELSE {{ queue.mark(box._low_below) }}
                        END
                    FROM {{ box.lane }} AS n
                ) AS lanes
                CROSS JOIN LATERAL (
                    SELECT q.id, q.group_id
                    FROM (
                        SELECT r.id, r.group_id, r.topic
                        FROM {{ box.ready }} AS r
                        WHERE r.lane = lanes.lane AND r.ticket >= lanes.low
                        ORDER BY r.lane, r.ticket
                        LIMIT 10000
                    ) AS q
                    WHERE q.topic <> ALL (paused)
                    LIMIT 1
                ) AS head
                CROSS JOIN LATERAL (
                    SELECT head.id WHERE head.id IS NOT NULL
                    UNION ALL
                    (
                        SELECT gm.id
                        FROM {{ box.group_member }} AS gm
                        WHERE gm.group_id = head.group_id
                        ORDER BY gm.id
                        LIMIT 1
                    )
                ) AS first
                INNER JOIN {{ box.message }} AS m ON m.id = first.id
                UNION ALL
                SELECT m.id, m.topic, s.due_at
                FROM (
                    SELECT x.id, x.due_at
                    FROM (
                        SELECT d.id, d.due_at, d.topic
                        FROM {{ box.scheduled }} AS d
                        WHERE d.due_at >= low_due AND d.due_at < now_at - interval '5 minutes'
                        ORDER BY d.due_at
                        LIMIT 10000
                    ) AS x
                    WHERE x.id IS NOT NULL AND x.topic <> ALL (paused)
                    LIMIT 1
                ) AS s
                INNER JOIN {{ box.message }} AS m ON m.id = s.id
            ) AS h
            WHERE h.since < now_at - interval '5 minutes' AND NOT paused @> '{""}'
            ORDER BY h.since
            LIMIT 1
    {% endcall %};

    -- The groups of the oldest thousand members.
    {% call doctor.look("groups", subject, "none is held up by its head") %}
            SELECT
                'warning', {{ subject }} || ', group ' || g.group_id,
                format(
                    'its head, message %s (attempt %s), %s; the next one waits for %s; %s', h.id, h.attempt,
                    CASE WHEN h.topic = ANY (paused) THEN 'is of the paused topic ' || h.topic ELSE 'is not due before ' || h.due_at END,
                    {{ doctor.lasting("now_at - n.since") }},
                    CASE WHEN count(*) OVER () = 1 THEN 'the only such group' ELSE format('one of %s such groups', count(*) OVER ()) END
                ),
                CASE
                    WHEN h.topic = ANY (paused) THEN format('SELECT * FROM %s(%L);', {{ box.resume | literal }}, h.topic)
                    ELSE format(
                        'SELECT * FROM %s(ARRAY[%s], NULL); -- or call it off: SELECT * FROM %s(ARRAY[%s]);',
                        {{ box.reschedule | literal }}, h.id, {{ box.cancel | literal }}, h.id
                    )
                END
            FROM (
                SELECT DISTINCT f.group_id
                FROM (
                    SELECT gm.group_id
                    FROM {{ box.group_member }} AS gm
                    WHERE gm.id >= low_grouped AND gm.id > 0
                    ORDER BY gm.id
                    LIMIT 1000
                ) AS f
            ) AS g
            CROSS JOIN LATERAL (
                SELECT m.id, m.topic, m.due_at, m.attempt
                FROM {{ box.group_member }} AS gm
                INNER JOIN {{ box.message }} AS m ON m.id = gm.id
                WHERE gm.group_id = g.group_id
                ORDER BY gm.id
                LIMIT 1
            ) AS h
            CROSS JOIN LATERAL (
                SELECT greatest(m.due_at, m.{{ came_at }}) AS since
                FROM {{ box.group_member }} AS gm
                INNER JOIN {{ box.message }} AS m ON m.id = gm.id
                WHERE gm.group_id = g.group_id AND gm.id > h.id
                ORDER BY gm.id
                LIMIT 1
            ) AS n
            WHERE (h.due_at > now_at OR h.topic = ANY (paused))
                AND NOT paused @> '{""}'
                AND n.since < now_at - interval '5 minutes'
                AND NOT EXISTS (SELECT FROM {{ box.lease }} AS l WHERE l.group_id = g.group_id)
            ORDER BY n.since
            LIMIT 10
    {% endcall %};

    {% call doctor.look("paused", subject, "no topic is paused") %}
            SELECT
                CASE WHEN p.paused_at < now_at - interval '1 day' THEN 'warning' ELSE 'note' END,
                {{ subject }} || CASE WHEN p.topic = '' THEN '' ELSE ', topic ' || p.topic END,
                format(
                    '%s for %s: nothing is handed out', CASE WHEN p.topic = '' THEN 'the whole box is paused' ELSE 'paused' END,
                    {{ doctor.lasting("now_at - p.paused_at") }}
                ),
                CASE
                    WHEN p.topic = '' THEN format('SELECT * FROM %s(NULL);', {{ box.resume | literal }})
                    ELSE format('SELECT * FROM %s(%L);', {{ box.resume | literal }}, p.topic)
                END
            FROM {{ box.paused }} AS p
            ORDER BY p.topic
    {% endcall %};

    {% call doctor.look("dead_letters", subject, "there are none") %}
            SELECT
                CASE WHEN d.last_at > now_at - interval '1 day' THEN 'warning' ELSE 'note' END, {{ subject }},
                format(
                    '%s%s, %s, %s ago', CASE WHEN d.looked_at = 1000 THEN 'at least ' END,
                    {{ doctor.counted("d.messages", "message was given up", "messages were given up, the last one") }}, d.last_id, {{ doctor.lasting("now_at - d.last_at") }}
                ),
                format(
                    'SELECT * FROM %s(); tells why. Then SELECT * FROM %s(ARRAY[%s]); or %s.', {{ box.dead_letters | literal }},
                    {{ box.replay | literal }}, d.last_id, {{ box.discard | literal }}
                )
            FROM (
                SELECT
                    count(*) AS looked_at, count(*) FILTER (WHERE l.is_given_up) AS messages,
                    max(l.died_at) FILTER (WHERE l.is_given_up) AS last_at,
                    (array_agg(l.id ORDER BY l.died_at DESC) FILTER (WHERE l.is_given_up))[1] AS last_id
                FROM (
                    SELECT x.id, x.died_at, NOT (x.cancelled OR x.expired) AS is_given_up
                    FROM {{ box.dead }} AS x
                    ORDER BY x.died_at DESC
                    LIMIT 1000
                ) AS l
            ) AS d
            WHERE d.messages > 0
    {% endcall %};

    -- What is left over although somebody cleans up may be meant to stay.
    {% call doctor.look("upkeep", subject, "somebody cleans up, or nothing is left over that they would have removed") %}
            SELECT
                CASE WHEN u.may_stay AND is_kept THEN 'note' ELSE 'warning' END, {{ subject }},
                u.detail || CASE
                    WHEN cleaned_at IS NULL THEN '; nobody has ever cleaned up here'
                    ELSE '; somebody has cleaned up here last ' || {{ doctor.lasting("now_at - cleaned_at") }} || ' ago'
                END,
                format('SELECT * FROM %s(604800, 1000); -- again and again until it answers 0; then every hour', {{ box.cleanup | literal }})
            FROM (
                SELECT
                    'its oldest done message was processed ' || {{ doctor.lasting("now_at - n.processed_at") }} || ' ago' AS detail,
                    true AS may_stay
                FROM (
                    SELECT x.processed_at
                    FROM {{ box.done }} AS x
                    WHERE x.processed_at >= low_done
                    ORDER BY x.processed_at
                    LIMIT 1
                ) AS n
                WHERE n.processed_at < now_at - CASE WHEN is_kept THEN interval '31 days' ELSE interval '26 hours' END
{% if kind == "outbox" %}
                UNION ALL
                SELECT
                    'its oldest deduplication key is ' || {{ doctor.lasting("now_at - k.seen_at") }} || ' old, far past its window',
                    false
                FROM (SELECT x.seen_at FROM {{ box.dedup }} AS x ORDER BY x.seen_at LIMIT 1) AS k
                WHERE k.seen_at < now_at - interval '26 hours' - make_interval(secs => (
                    SELECT s.value::double precision FROM {{ box.settings }} AS s WHERE s.name = 'dedup_window_seconds'
                ))
{% endif %}
            ) AS u
    {% endcall %};

{% if kind == "outbox" %}
    {% call doctor.look("schedules", subject, "none is overdue") %}
            SELECT
                CASE
                    WHEN s.next_at IS NULL THEN 'note'
                    WHEN s.next_at > now_at - interval '1 hour' THEN 'warning'
                    ELSE 'error'
                END,
                {{ subject }} || ', schedule ' || s.name,
                CASE
                    WHEN s.next_at IS NULL THEN 'no worker has looked at it yet: its first time is not worked out'
                    ELSE format('it is due since %s and nobody fires it', {{ doctor.lasting("now_at - s.next_at") }})
                END,
                format(
                    'Start a worker of this box; if one runs, its log tells why it cannot fire it. SELECT * FROM %s();',
                    {{ box.schedule_list | literal }}
                )
            FROM (
                (
                    SELECT x.name, x.next_at
                    FROM {{ box.schedules }} AS x
                    WHERE x.enabled AND x.next_at < now_at - interval '5 minutes'
                    ORDER BY x.next_at, x.name
                    LIMIT 10
                )
                UNION ALL
                (
                    SELECT x.name, x.next_at
                    FROM {{ box.schedules }} AS x
                    WHERE x.enabled AND x.next_at IS NULL
                    ORDER BY x.next_at, x.name
                    LIMIT 10
                )
            ) AS s
            ORDER BY s.next_at, s.name
    {% endcall %};

{% endif %}
    -- A session that listens and does nothing else has its LISTEN as its last statement. Behind a pooler that changes
    -- sessions between transactions it is somebody else's statement, and the listener hears nothing. A worker of many stores
    -- listens on a session that it uses otherwise too, which has in its name that it was told of something.
    {% call doctor.look("listeners", subject, "its workers hear its notifications, or there are none") %}
            SELECT
                'note', {{ subject }},
                'somebody works here and it notifies, but no session is seen that only listens: its workers poll, or their LISTEN'
                ' goes through a pooler in transaction mode and hears nothing',
                format('Let workers connect past the pooler; or, if polling will do: SELECT * FROM %s(''notify'', ''off'');', {{ box.configure | literal }})
            FROM {{ box.settings }} AS s
            -- Whoever may not see what others' sessions do cannot tell.
            WHERE s.name = 'notify' AND s.value = 'on' AND is_manned AND pg_has_role('pg_read_all_stats', 'USAGE')
                AND NOT EXISTS (
                    SELECT FROM pg_stat_activity AS a
                    WHERE a.datname = current_database() AND (a.query ~* '^\s*LISTEN\s' OR a.application_name LIKE '% (listens)')
                )
            {{ doctor.hidden() }} AND is_manned
    {% endcall %};

    {% call doctor.look("clock", subject, "it has no times that are still to come") %}
            SELECT
                'warning', {{ subject }},
                format(
                    'it has %s %s ahead of the server''s clock: that was set back, or the server took over from one whose clock is ahead',
                    t.what, {{ doctor.lasting("t.at - now_at") }}
                ),
                'Set the server''s clock by NTP; until it has caught up, what was delayed or leased is late by as much.'
            FROM (
                SELECT 'a message done' AS what, max(n.processed_at) AS at
                FROM {{ box.done }} AS n
                WHERE n.processed_at > now_at + interval '2 seconds'
                UNION ALL
                SELECT 'a message given up', max(d.died_at)
                FROM {{ box.dead }} AS d
                WHERE d.died_at > now_at + interval '2 seconds'
                UNION ALL
                SELECT 'a lease that ends, though none lasts longer than a day,', max(l.locked_until) - interval '1 day'
                FROM {{ box.lease }} AS l
                WHERE l.locked_until > now_at + interval '1 day 2 seconds'
            ) AS t
            WHERE t.at IS NOT NULL
    {% endcall %};
END;
$$;
