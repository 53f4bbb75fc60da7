{% import "macros/clock.sql" as clock with context %}
{% import "macros/doctor.sql" as doctor with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/messages.sql" as messages with context %}
{% import "macros/upkeep.sql" as upkeep with context %}
{% set subject = "CONCAT(N'box ', " ~ (box_name | literal) ~ ")" %}

-- What is wrong with one box: what nobody claims, extends, resumes, replays or cleans up. Reads the ends of indexes and
-- bounded pieces of them, each by a seek, and never counts a table.
-- returns: check, level, subject, detail, advice; into #pysqlbox_doctor
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._doctor }}
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @now_at datetime2(6) = {{ clock.now() }};
    DECLARE @is_served bit = 0;
    DECLARE @is_paused bit = 0;
    DECLARE @cleaned_at datetime2(6);
    -- Whether somebody cleans up: once a day is enough, and may be two hours late.
    DECLARE @is_kept bit = 0;
    DECLARE @lane int;
    DECLARE @lanes int = 0;
    -- What stands first, lane by lane, behind what is paused; a group's ticket stands for its first member.
    DECLARE @head TABLE (ticket bigint NOT NULL, id bigint, group_key nvarchar(256) COLLATE Latin1_General_100_BIN2);

    -- Who has said that it works here, the latest first.
    DECLARE @worker TABLE (
        seen_at datetime2(6) NOT NULL, name nvarchar(255) COLLATE Latin1_General_100_BIN2,
        host nvarchar(255) COLLATE Latin1_General_100_BIN2, topics nvarchar(max) COLLATE Latin1_General_100_BIN2
    );

    BEGIN TRY
        INSERT INTO @worker (seen_at, name, host, topics)
        SELECT TOP (100) w.seen_at, w.name, w.host, w.topics
        FROM {{ db.worker }} AS w WITH (FORCESEEK)
        WHERE w.seen_at > DATEADD(DAY, -7, @now_at)
            AND EXISTS (
                SELECT 1 FROM OPENJSON(w.boxes) AS j WHERE j.value COLLATE Latin1_General_100_BIN2 = {{ box_name | literal }}
            )
        ORDER BY w.seen_at DESC;
        IF EXISTS (SELECT 1 FROM {{ box.paused }} AS p WHERE p.topic_key = N'.')
            SET @is_paused = 1;
        SET @cleaned_at = {{ upkeep.last("cleanup") }};
        IF @cleaned_at > DATEADD(HOUR, -26, @now_at)
            SET @is_kept = 1;
        IF EXISTS (
            SELECT 1
            FROM (
                SELECT TOP (100) x.processed_by
                FROM {{ box.done }} AS x WITH (FORCESEEK)
                WHERE x.processed_at > DATEADD(MINUTE, -5, @now_at)
                ORDER BY x.processed_at DESC
            ) AS n
            WHERE n.processed_by IS NOT NULL
        )
            OR EXISTS (SELECT 1 FROM {{ box.lease }} AS l WITH (FORCESEEK) WHERE l.locked_until > @now_at)
            OR EXISTS (SELECT 1 FROM @worker AS w WHERE w.seen_at > DATEADD(MINUTE, -2, @now_at))
            SET @is_served = 1;
        SET @lane = (SELECT TOP (1) r.lane FROM {{ box.ready }} AS r WITH (FORCESEEK) WHERE r.lane >= -32768 ORDER BY r.lane);
        WHILE @lane IS NOT NULL AND @lanes < 100
        BEGIN
            INSERT INTO @head (ticket, id, group_key)
            SELECT TOP (1) q.ticket, q.id, q.group_key
            FROM (
                SELECT TOP (10000) r.ticket, r.id, r.group_key, r.topic_key
                FROM {{ box.ready }} AS r WITH (FORCESEEK)
                WHERE r.lane = @lane
                ORDER BY r.ticket
            ) AS q
            WHERE q.topic_key NOT IN (SELECT p.topic_key FROM {{ box.paused }} AS p)
            ORDER BY q.ticket;
            SET @lane = (SELECT TOP (1) r.lane FROM {{ box.ready }} AS r WITH (FORCESEEK) WHERE r.lane > @lane ORDER BY r.lane);
            SET @lanes = @lanes + 1;
        END;
    END TRY
    BEGIN CATCH
        {{ doctor.unknown("box", subject) | indent(4) }}
        RETURN;
    END CATCH;

    {% call doctor.look("indexes", subject, "none is missing or disabled", right="definition", elsewhere=false) %}
            {% call doctor.missing_of() %}
                {{ doctor.constraint(box.message, key.pk_message, "PRIMARY KEY CLUSTERED (id)") }},
{%- if kind == "inbox" %}

                {{ doctor.constraint(box.message, key.uq_message_key, "UNIQUE NONCLUSTERED (source_key, message_id_key)") }},
                {{ doctor.constraint(box.seen, key.pk_seen, "PRIMARY KEY CLUSTERED (id)") }},
{% else %}
                {{ doctor.constraint(box.message, key.uq_message_message_id, "UNIQUE NONCLUSTERED (message_id)") }},
                {{ doctor.constraint(box.dedup, key.pk_dedup, "PRIMARY KEY CLUSTERED (dedup_key)") }},
                {{ doctor.index(box.dedup, key.ix_dedup_age, "(seen_at)") }},
                {{ doctor.constraint(box.schedules, key.pk_schedules, "PRIMARY KEY CLUSTERED (schedule_key)") }},
                {{ doctor.index(box.schedules, key.ix_schedules_next, "(next_at, schedule_key) WHERE enabled = 1") }},
{% endif %}
                {{ doctor.constraint(box.ready, key.pk_ready, "PRIMARY KEY CLUSTERED (lane, ticket)") }},
                {{ doctor.index(box.ready, key.ix_ready_topic, "(topic_key, lane, ticket)") }},
                {{ doctor.index(box.ready, key.ix_ready_returned, "(id) WHERE id IS NOT NULL") }},
                {{ doctor.index(box.ready, key.ix_ready_group, "(group_key) WHERE group_key IS NOT NULL") }},
                {{ doctor.constraint(box.scheduled, key.pk_scheduled, "PRIMARY KEY CLUSTERED (due_at, no)") }},
                {{ doctor.index(box.scheduled, key.ix_scheduled_id, "(id) WHERE id IS NOT NULL") }},
                {{ doctor.constraint(box.group_member, key.pk_group_member, "PRIMARY KEY CLUSTERED (group_key, id)") }},
                {{ doctor.index(box.group_member, key.ix_group_member_id, "(id)") }},
                {{ doctor.constraint(box.lease, key.pk_lease, "PRIMARY KEY CLUSTERED (id)") }},
                {{ doctor.index(box.lease, key.ix_lease_expiry, "(locked_until)") }},
                {{ doctor.index(box.lease, key.ix_lease_group, "(group_key) WHERE group_key IS NOT NULL") }},
                {{ doctor.constraint(box.done, key.pk_done, "PRIMARY KEY CLUSTERED (id)") }},
                {{ doctor.index(box.done, key.ix_done_age, "(processed_at)") }},
                {{ doctor.constraint(box.dead, key.pk_dead, "PRIMARY KEY CLUSTERED (id)") }},
                {{ doctor.index(box.dead, key.ix_dead_topic, "(topic_key, id)") }},
                {{ doctor.index(box.dead, key.ix_dead_age, "(died_at)") }},
                {{ doctor.constraint(box.collapse, key.pk_collapse, "PRIMARY KEY CLUSTERED (collapse_key, id)") }},
                {{ doctor.constraint(box.tally, key.pk_tally, "PRIMARY KEY CLUSTERED (no)") }},
                {{ doctor.constraint(box.tally_total, key.pk_tally_total, "PRIMARY KEY CLUSTERED (topic_key)") }},
                {{ doctor.constraint(box.paused, key.pk_paused, "PRIMARY KEY CLUSTERED (topic_key)") }},
                {{ doctor.constraint(box.settings, key.pk_settings, "PRIMARY KEY CLUSTERED (name)") }},
                {{ doctor.constraint(box._upkeep, key.pk_upkeep, "PRIMARY KEY CLUSTERED (what)") }}
            {% endcall %}
    {% endcall %}

    {% call doctor.look("leases", subject, "none has run out that nobody has taken back") %}
            SELECT
                CASE WHEN f.locked_until < DATEADD(MINUTE, -10, @now_at) THEN N'error' ELSE N'warning' END AS level,
                {{ subject }} AS subject,
                CONCAT(
                    CASE WHEN e.leases = 1000 THEN N'at least ' END,
                    {{ doctor.counted("e.leases", "lease has run out and nobody takes it back,", "leases have run out and nobody takes them back; the first") }},
                    N' ', {{ doctor.lasting("f.locked_until", "@now_at") }}, N' ago, of message ', f.id, N', owner ', f.owner_token
                ) AS detail,
                {{ ("EXEC " ~ box.reap ~ " @batch_size = 1000; -- any claim does it too") | literal }} AS advice
            FROM (
                SELECT TOP (1) l.id, l.owner_token, l.locked_until
                FROM {{ box.lease }} AS l WITH (FORCESEEK)
                WHERE l.locked_until < DATEADD(MINUTE, -1, @now_at)
                ORDER BY l.locked_until
            ) AS f
            CROSS JOIN (
                SELECT COUNT(*) AS leases
                FROM (
                    SELECT TOP (1000) l.id
                    FROM {{ box.lease }} AS l WITH (FORCESEEK)
                    WHERE l.locked_until < DATEADD(MINUTE, -1, @now_at)
                ) AS x
            ) AS e
    {% endcall %}

    {% call doctor.look("unclaimed", subject, "nothing waits long to be claimed") %}
            SELECT TOP (1)
                CASE
                    WHEN @is_served = 1 AND h.since > DATEADD(HOUR, -1, @now_at) THEN N'note'
                    WHEN @is_served = 1 OR h.since > DATEADD(HOUR, -1, @now_at) THEN N'warning'
                    ELSE N'error'
                END AS level,
                CONCAT({{ subject }}, N', topic ', h.topic) AS subject,
                CONCAT(
                    N'message ', h.id, N' waits for ', {{ doctor.lasting("h.since", "@now_at") }},
                    CASE
                        WHEN @is_served = 0
                            THEN N'; nobody has claimed or settled anything for five minutes' + ISNULL(
                                (
                                    SELECT TOP (1) CONCAT(
                                        N'; the worker seen last, ', w.name, N' on ', w.host, N', was here ',
                                        {{ doctor.lasting("w.seen_at", "@now_at") }}, N' ago'
                                    )
                                    FROM @worker AS w
                                    ORDER BY w.seen_at DESC
                                ), N''
                            )
                        WHEN EXISTS (SELECT 1 FROM @worker AS w WHERE w.seen_at > DATEADD(MINUTE, -2, @now_at))
                            AND NOT EXISTS (
                                SELECT 1
                                FROM @worker AS w
                                WHERE w.seen_at > DATEADD(MINUTE, -2, @now_at)
                                    AND (
                                        w.topics IS NULL
                                        OR EXISTS (
                                            SELECT 1
                                            FROM OPENJSON(w.topics) AS j
                                            WHERE j.value COLLATE Latin1_General_100_BIN2 = h.topic
                                        )
                                    )
                            ) THEN N'; somebody works here, but none of the workers that say who they are handles this topic'
                        ELSE N'; somebody works here, but cannot keep up or does not take this topic'
                    END
                ) AS detail,
                {{ ("Start a worker, or more of them, that serve this topic; EXEC " ~ box.stats ~ "; counts.") | literal }} AS advice
            FROM (
                SELECT m.id, m.topic, {{ messages.since() }} AS since
                FROM @head AS d
                OUTER APPLY (
                    SELECT TOP (1) gm.id
                    FROM {{ box.group_member }} AS gm
                    WHERE gm.group_key = d.group_key
                    ORDER BY gm.id
                ) AS g
                INNER JOIN {{ box.message }} AS m WITH (FORCESEEK)
                    ON m.id = CASE WHEN d.group_key IS NULL THEN COALESCE(d.id, d.ticket) ELSE g.id END
                UNION ALL
                SELECT m.id, m.topic, s.due_at
                FROM (
                    SELECT TOP (1) x.id, x.due_at
                    FROM (
                        SELECT TOP (10000) d.id, d.due_at, d.topic_key
                        FROM {{ box.scheduled }} AS d WITH (FORCESEEK)
                        WHERE d.due_at < DATEADD(MINUTE, -5, @now_at)
                        ORDER BY d.due_at
                    ) AS x
                    WHERE x.id IS NOT NULL AND x.topic_key NOT IN (SELECT p.topic_key FROM {{ box.paused }} AS p)
                    ORDER BY x.due_at
                ) AS s
                INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = s.id
            ) AS h
            WHERE h.since < DATEADD(MINUTE, -5, @now_at) AND @is_paused = 0
            ORDER BY h.since
    {% endcall %}

    -- The groups of the oldest thousand members.
    {% call doctor.look("groups", subject, "none is held up by its head") %}
            SELECT TOP (10)
                N'warning' AS level, CONCAT({{ subject }}, N', group ', {{ doctor.text_of("g.group_key") }}) AS subject,
                CONCAT(
                    N'its head, message ', h.id, N' (attempt ', h.attempt, N'), ',
                    CASE
                        WHEN h.is_paused = 1 THEN CONCAT(N'is of the paused topic ', h.topic)
                        ELSE CONCAT(N'is not due before ', h.due_at)
                    END,
                    N'; the next one waits for ', {{ doctor.lasting("n.since", "@now_at") }},
                    CASE WHEN COUNT(*) OVER () = 1 THEN N'; the only such group' ELSE CONCAT(N'; one of ', COUNT(*) OVER (), N' such groups') END
                ) AS detail,
                CASE
                    WHEN h.is_paused = 1 THEN CONCAT({{ ("EXEC " ~ box.resume ~ " @topic = ") | literal }}, {{ doctor.quoted("h.topic") }}, N';')
                    ELSE CONCAT(
                        {{ ("EXEC " ~ box.reschedule ~ " @ids = N'[") | literal }}, h.id,
                        {{ ("]'; -- or call it off: EXEC " ~ box.cancel ~ " @ids = N'[") | literal }}, h.id, N']'';'
                    )
                END AS advice
            {{ groups.waiting_heads(1000) | indent(8) }}
                AND (h.due_at > @now_at OR h.is_paused = 1)
                AND @is_paused = 0
                AND n.since < DATEADD(MINUTE, -5, @now_at)
            ORDER BY n.since
    {% endcall %}

    {% call doctor.look("paused", subject, "no topic is paused") %}
            SELECT TOP (1000)
                CASE WHEN p.paused_at < DATEADD(DAY, -1, @now_at) THEN N'warning' ELSE N'note' END AS level,
                CONCAT({{ subject }}, CASE WHEN p.topic_key <> N'.' THEN CONCAT(N', topic ', {{ doctor.text_of("p.topic_key") }}) END) AS subject,
                CONCAT(
                    CASE WHEN p.topic_key = N'.' THEN N'the whole box is paused for ' ELSE N'paused for ' END,
                    {{ doctor.lasting("p.paused_at", "@now_at") }}, N': nothing is handed out'
                ) AS detail,
                CONCAT(
                    {{ ("EXEC " ~ box.resume ~ " @topic = ") | literal }},
                    CASE WHEN p.topic_key = N'.' THEN N'NULL' ELSE {{ doctor.quoted(doctor.text_of("p.topic_key")) }} END, N';'
                ) AS advice
            FROM {{ box.paused }} AS p
            ORDER BY p.topic_key
    {% endcall %}

    {% call doctor.look("dead_letters", subject, "there are none") %}
            SELECT
                CASE WHEN f.died_at > DATEADD(DAY, -1, @now_at) THEN N'warning' ELSE N'note' END AS level, {{ subject }} AS subject,
                CONCAT(
                    CASE WHEN e.looked_at = 1000 THEN N'at least ' END,
                    {{ doctor.counted("e.messages", "message was given up", "messages were given up, the last one") }},
                    N', ', f.id, N', ', {{ doctor.lasting("f.died_at", "@now_at") }}, N' ago'
                ) AS detail,
                CONCAT(
                    {{ ("EXEC " ~ box.dead_letters ~ "; tells why. Then EXEC " ~ box.replay ~ " @ids = N'[") | literal }}, f.id,
                    {{ ("]'; or " ~ box.discard ~ ".") | literal }}
                ) AS advice
            FROM (
                SELECT COUNT(*) AS looked_at, COUNT(CASE WHEN x.expired = 0 AND x.cancelled = 0 THEN 1 END) AS messages
                FROM (
                    SELECT TOP (1000) d.expired, d.cancelled
                    FROM {{ box.dead }} AS d WITH (FORCESEEK)
                    WHERE d.died_at >= CONVERT(datetime2(6), '0001-01-01')
                    ORDER BY d.died_at DESC
                ) AS x
            ) AS e
            CROSS JOIN (
                SELECT TOP (1) y.id, y.died_at
                FROM (
                    SELECT TOP (1000) d.id, d.died_at, d.expired, d.cancelled
                    FROM {{ box.dead }} AS d WITH (FORCESEEK)
                    WHERE d.died_at >= CONVERT(datetime2(6), '0001-01-01')
                    ORDER BY d.died_at DESC
                ) AS y
                WHERE y.expired = 0 AND y.cancelled = 0
                ORDER BY y.died_at DESC
            ) AS f
            WHERE e.messages > 0
    {% endcall %}

    -- What is left over although somebody cleans up may be meant to stay.
    {% call doctor.look("upkeep", subject, "somebody cleans up, or nothing is left over that they would have removed") %}
            SELECT
                CASE WHEN u.may_stay = 1 AND @is_kept = 1 THEN N'note' ELSE N'warning' END AS level, {{ subject }} AS subject,
                CONCAT(
                    u.detail,
                    CASE
                        WHEN @cleaned_at IS NULL THEN N'; nobody has ever cleaned up here'
                        ELSE CONCAT(N'; somebody has cleaned up here last ', {{ doctor.lasting("@cleaned_at", "@now_at") }}, N' ago')
                    END
                ) AS detail,
                {{ ("EXEC " ~ box.cleanup ~ " @retention_seconds = 604800, @batch_size = 1000; -- again and again until it answers 0; then every hour") | literal }} AS advice
            FROM (
                SELECT
                    CONCAT(N'its oldest done message was processed ', {{ doctor.lasting("n.processed_at", "@now_at") }}, N' ago') AS detail,
                    1 AS may_stay
                FROM (
                    SELECT TOP (1) x.processed_at
                    FROM {{ box.done }} AS x WITH (FORCESEEK)
                    WHERE x.processed_at < DATEADD(HOUR, CASE WHEN @is_kept = 1 THEN -744 ELSE -26 END, @now_at)
                    ORDER BY x.processed_at
                ) AS n
{% if kind == "outbox" %}
                UNION ALL
                SELECT
                    CONCAT(N'its oldest deduplication key is ', {{ doctor.lasting("k.seen_at", "@now_at") }}, N' old, far past its window'),
                    0
                FROM (
                    SELECT TOP (1) x.seen_at
                    FROM {{ box.dedup }} AS x WITH (FORCESEEK)
                    WHERE x.seen_at < DATEADD(HOUR, -26, @now_at)
                    ORDER BY x.seen_at
                ) AS k
                CROSS JOIN (
                    SELECT TRY_CONVERT(int, TRY_CONVERT(float, s.value)) AS seconds
                    FROM {{ box.settings }} AS s
                    WHERE s.name = N'dedup_window_seconds'
                ) AS w
                WHERE k.seen_at < DATEADD(HOUR, -26, DATEADD(SECOND, -w.seconds, @now_at))
{% endif %}
            ) AS u
    {% endcall %}

{% if kind == "outbox" %}
    {% call doctor.look("schedules", subject, "none is overdue") %}
            SELECT
                CASE
                    WHEN s.next_at IS NULL THEN N'note'
                    WHEN s.next_at > DATEADD(HOUR, -1, @now_at) THEN N'warning'
                    ELSE N'error'
                END AS level,
                CONCAT({{ subject }}, N', schedule ', {{ doctor.text_of("s.schedule_key") }}) AS subject,
                CASE
                    WHEN s.next_at IS NULL THEN N'no worker has looked at it yet: its first time is not worked out'
                    ELSE CONCAT(N'it is due since ', {{ doctor.lasting("s.next_at", "@now_at") }}, N' and nobody fires it')
                END AS detail,
                {{ ("Start a worker of this box; if one runs, its log tells why it cannot fire it. EXEC " ~ box.schedule_list ~ ";") | literal }} AS advice
            FROM (
                SELECT o.schedule_key, o.next_at
                FROM (
                    SELECT TOP (10) x.schedule_key, x.next_at
                    FROM {{ box.schedules }} AS x
                    WHERE x.enabled = 1 AND x.next_at < DATEADD(MINUTE, -5, @now_at)
                    ORDER BY x.next_at, x.schedule_key
                ) AS o
                UNION ALL
                SELECT n.schedule_key, n.next_at
                FROM (
                    SELECT TOP (10) x.schedule_key, x.next_at
                    FROM {{ box.schedules }} AS x
                    WHERE x.enabled = 1 AND x.next_at IS NULL
                    ORDER BY x.schedule_key
                ) AS n
            ) AS s
    {% endcall %}
{% endif %}

    {% call doctor.look("clock", subject, "it has no times that are still to come") %}
            SELECT
                N'warning' AS level, {{ subject }} AS subject,
                CONCAT(
                    N'it has ', t.what, N' ', {{ doctor.lasting("@now_at", "t.at") }},
                    N' ahead of the server''s clock: that was set back, or the server took over from one whose clock is ahead'
                ) AS detail,
                N'Set the server''s clock by NTP; until it has caught up, what was delayed or leased is late by as much.' AS advice
            FROM (
                SELECT N'a message done' AS what, MAX(n.processed_at) AS at
                FROM {{ box.done }} AS n WITH (FORCESEEK)
                WHERE n.processed_at > DATEADD(SECOND, 2, @now_at)
                UNION ALL
                SELECT N'a message given up', MAX(d.died_at)
                FROM {{ box.dead }} AS d WITH (FORCESEEK)
                WHERE d.died_at > DATEADD(SECOND, 2, @now_at)
                UNION ALL
                SELECT N'a lease that ends, though none lasts longer than a day,', DATEADD(DAY, -1, MAX(l.locked_until))
                FROM {{ box.lease }} AS l WITH (FORCESEEK)
                WHERE l.locked_until > DATEADD(SECOND, 2, DATEADD(DAY, 1, @now_at))
            ) AS t
            WHERE t.at IS NOT NULL
    {% endcall %}
END;
