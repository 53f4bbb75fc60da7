-- after: _bury, _claim_groups, _promote, _reap, _tick, _unpaused

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}
{% import "macros/messages.sql" as messages with context %}

-- Hands out up to batch_size messages under a lease, whole, in claim order.
-- Waits for no other claim and returns no message twice while its lease is good. First brings back a few expired
-- leases and moves what has become due, so a queue that is only claimed from needs no other care.
-- Under any isolation level of the caller, for it changes over to READ COMMITTED; on Babelfish, which cannot, it takes
-- no part in a transaction of another one.
-- What one call does is bounded: it takes no ticket that is put out while it runs, hands out members of at most 500
-- groups, and buries some 5,000 messages past their time more than it hands out; then it answers what it has.
-- owner_token: not the nil uuid
-- lease_seconds: from 1 to 86400
-- batch_size: from 1 to 10000
-- topics: only these; null for all
{% if kind == "inbox" %}
-- returns: id, message_id, source, topic, payload, hash, group_id, priority, headers, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, locked_until
{% else %}
-- returns: id, message_id, topic, payload, correlation_id, group_id, priority, headers, attempt, created_at, due_at, expires_at, last_error, locked_until
{% endif %}
-- errors: PB001, PB003
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.claim }}
    @owner_token uniqueidentifier,
    @lease_seconds int,
    @batch_size int,
    @topics nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6);
    DECLARE @until_at datetime2(6);
    DECLARE @key bigint;
    DECLARE @locked int;
    DECLARE @level nvarchar(60);
    DECLARE @room int;
    DECLARE @last bigint = 9223372036854775807;
    DECLARE @turn int = 0;
    DECLARE @is_open bit = 1;
    DECLARE @is_limited bit = CASE WHEN @topics IS NULL THEN 0 ELSE 1 END;
    DECLARE @any_paused bit = 0;
    DECLARE @reach int = 0;
    DECLARE @seen int;
    DECLARE @marked int = 0;
    DECLARE @took int;
    DECLARE @is_more bit;
    DECLARE @found_count int = 0;
    DECLARE @buried_count int = 0;
    DECLARE @group_count int;
    DECLARE @share int;
    DECLARE @ids nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @allowed nvarchar(max);
    DECLARE @mark uniqueidentifier;
    DECLARE @topic TABLE (topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
    DECLARE @candidate TABLE (
        lane int NOT NULL,
        ticket bigint NOT NULL,
        is_paused bit NOT NULL,
        PRIMARY KEY (lane, ticket)
    );
    DECLARE @head TABLE (lane int NOT NULL, ticket bigint NOT NULL, PRIMARY KEY (lane, ticket));
    DECLARE @got TABLE (
        lane int NOT NULL,
        ticket bigint NOT NULL,
        id bigint,
        expires_at datetime2(6),
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        PRIMARY KEY (lane, ticket)
    );
    DECLARE @group TABLE (
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY,
        lane int NOT NULL,
        ticket bigint NOT NULL
    );
    DECLARE @found TABLE (
        turn int NOT NULL,
        lane int NOT NULL,
        ticket bigint NOT NULL,
        id bigint NOT NULL,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        PRIMARY KEY (turn, lane, ticket, id)
    );

    IF @owner_token IS NULL
        OR @owner_token = '00000000-0000-0000-0000-000000000000'
        OR @lease_seconds IS NULL OR @lease_seconds NOT BETWEEN 1 AND 86400
        OR @batch_size IS NULL OR @batch_size NOT BETWEEN 1 AND 10000
    {{ arguments.check_by(
        db._check_owner ~ " @owner_token = @owner_token, @lease_seconds = @lease_seconds, @batch_size = @batch_size"
    ) }}
    IF {{ arguments.not_array("@topics") }}
    {{ arguments.reject("topics", "must be a JSON array") }}

    BEGIN TRANSACTION;
    -- Babelfish passes over no locked row: there one claim at a time takes its rows, lest two wait crosswise.
    IF SERVERPROPERTY('Babelfish') IS NOT NULL
    BEGIN
        {{ groups.read_level() | indent(4) }}
        IF @level <> N'read committed'
        {{ arguments.refuse(51003, "claim: needs a READ COMMITTED transaction; claim outside of yours, or set its isolation level") | indent(4) }}
        SET @key = {{ locks.number((schema ~ "." ~ box_name ~ ":claim") | literal) }};
        EXEC sys.sp_executesql
            N'SELECT @locked = COUNT(*) FROM (SELECT pg_catalog.pg_advisory_xact_lock(@key) AS taken) AS l;',
            N'@key bigint, @locked int OUTPUT', @key = @key, @locked = @locked OUTPUT;
    END;
    SET @now_at = {{ clock.now() }};
    SET @until_at = DATEADD(SECOND, @lease_seconds, @now_at);

    -- What has to be brought back first.
    IF EXISTS (
        SELECT 1
        FROM {{ box.lease }} AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK ({{ key.ix_lease_expiry }} (locked_until)))
        WHERE l.locked_until < @now_at
    )
        EXEC {{ box._reap }} @batch_size = 100;
    IF EXISTS (
        SELECT 1
        FROM {{ box.scheduled }} AS s WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
        WHERE s.due_at <= @now_at
    )
    BEGIN
        SET @room = CASE WHEN @batch_size > 100 THEN @batch_size ELSE 100 END;
        EXEC {{ box._promote }} @room = @room;
    END;

    -- What may be handed out.
    IF EXISTS (SELECT 1 FROM {{ box.paused }} AS p)
    BEGIN
        SET @any_paused = 1;
        IF EXISTS (SELECT 1 FROM {{ box.paused }} AS p WHERE p.topic_key = N'.')
            SET @is_open = 0;
    END;
    IF @is_limited = 1 AND @is_open = 1
    BEGIN
        INSERT INTO @topic (topic_key)
        SELECT u.topic_key
        FROM {{ box._unpaused }} (@topics) AS u;
        SET @allowed = ISNULL((SELECT t.topic_key FROM @topic AS t FOR JSON PATH), N'[]');
    END;

    -- Each turn takes tickets from the head of the log and resolves them. It ends because tickets that are put out
    -- from the first turn on lie beyond @last and are not looked at, and each turn but the last takes some of the
    -- others; however many those are, after 50 turns or 5,000 burials. (No lane is below -32768: saying so makes the head
    -- of the log a seek.)
    WHILE @is_open = 1
    BEGIN
        SET @turn += 1;
        SET @room = @batch_size - @found_count;
        DELETE FROM @head;
        DELETE FROM @got;

        -- Take. What the deletion answers is what this claim has, also where hints are not honoured.
        IF @is_limited = 0 AND @any_paused = 0 AND SERVERPROPERTY('Babelfish') IS NULL
        BEGIN
            WITH head AS (
                SELECT TOP (@room) r.lane, r.ticket, r.id, r.expires_at, r.topic_key, r.group_key
                FROM {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                WHERE r.lane >= -32768 AND r.ticket < @last
                ORDER BY r.lane, r.ticket
            )
            DELETE FROM head
            OUTPUT
                deleted.lane, deleted.ticket, deleted.id, deleted.expires_at, deleted.topic_key, deleted.group_key
            INTO @got (lane, ticket, id, expires_at, topic_key, group_key)
            OPTION (KEEPFIXED PLAN);
            SET @took = @@ROWCOUNT;
            SET @marked = @took;
            SET @is_more = CASE WHEN @took = @room THEN 1 ELSE 0 END;
        END
        ELSE
        BEGIN
            IF @is_limited = 0 AND @any_paused = 0
            BEGIN
                INSERT INTO @head (lane, ticket)
                SELECT TOP (@room) r.lane, r.ticket
                FROM {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                WHERE r.lane >= -32768 AND r.ticket < @last
                ORDER BY r.lane, r.ticket
                OPTION (KEEPFIXED PLAN);
                SET @marked = @@ROWCOUNT;
                SET @is_more = CASE WHEN @marked = @room THEN 1 ELSE 0 END;
            END
            ELSE
            BEGIN
                DELETE FROM @candidate;
                IF @is_limited = 0
                BEGIN
                    -- Some topics are paused: their tickets are stepped over, as long as they are not too many.
                    SET @reach = 2 * @room + 1000;
                    INSERT INTO @candidate (lane, ticket, is_paused)
                    SELECT
                        n.lane, n.ticket,
                        CASE
                            WHEN EXISTS (SELECT 1 FROM {{ box.paused }} AS p WHERE p.topic_key = n.topic_key) THEN 1
                            ELSE 0
                        END
                    FROM (
                        SELECT TOP (@reach) c.lane, c.ticket, c.topic_key
                        FROM {{ box.ready }} AS c WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                        WHERE c.lane >= -32768 AND c.ticket < @last
                        ORDER BY c.lane, c.ticket
                    ) AS n
                    OPTION (KEEPFIXED PLAN);
                    SET @is_more = CASE WHEN @@ROWCOUNT = @reach THEN 1 ELSE 0 END;
                    IF @is_more = 1 AND (SELECT COUNT(*) FROM @candidate AS c WHERE c.is_paused = 0) < @room
                    BEGIN
                        SET @is_limited = 1;
                        SET @reach = 0;
                        INSERT INTO @topic (topic_key)
                        SELECT u.topic_key
                        FROM {{ box._unpaused }} (NULL) AS u;
                    END;
                END;
                IF @is_limited = 1
                BEGIN
                    -- Each topic's own order, merged; of the candidates only as many are locked as there is room for.
                    -- Somebody may have had everything within reach locked while more lies beyond it.
                    SET @reach = CASE
                        WHEN @reach = 0 THEN 2 * @room + 20
                        WHEN @marked < @room AND @reach < 100000 THEN 4 * @reach
                        ELSE @reach
                    END;
                    DELETE FROM @candidate;
                    INSERT INTO @candidate (lane, ticket, is_paused)
                    SELECT TOP (@reach) n.lane, n.ticket, 0
                    FROM @topic AS t
                    CROSS APPLY (
                        SELECT TOP (@reach) c.lane, c.ticket
                        FROM {{ box.ready }} AS c
                            WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK ({{ key.ix_ready_topic }} (topic_key)))
                        WHERE c.topic_key = t.topic_key AND c.ticket < @last
                        ORDER BY c.lane, c.ticket
                    ) AS n
                    ORDER BY n.lane, n.ticket
                    OPTION (KEEPFIXED PLAN);
                    SET @is_more = CASE WHEN @@ROWCOUNT = @reach THEN 1 ELSE 0 END;
                END;

                INSERT INTO @head (lane, ticket)
                SELECT TOP (@room) r.lane, r.ticket
                FROM @candidate AS c
                INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                    ON r.lane = c.lane AND r.ticket = c.ticket
                WHERE c.is_paused = 0
                ORDER BY c.lane, c.ticket
                OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN);
                SET @marked = @@ROWCOUNT;
                IF @marked = @room
                    SET @is_more = 1;
            END;

            DELETE r
            OUTPUT
                deleted.lane, deleted.ticket, deleted.id, deleted.expires_at, deleted.topic_key, deleted.group_key
            INTO @got (lane, ticket, id, expires_at, topic_key, group_key)
            FROM @head AS h
            INNER JOIN {{ box.ready }} AS r WITH (ROWLOCK, FORCESEEK) ON r.lane = h.lane AND r.ticket = h.ticket
            OPTION (KEEPFIXED PLAN);
            SET @took = @@ROWCOUNT;
        END;

        INSERT INTO @found (turn, lane, ticket, id, topic_key)
        SELECT @turn, g.lane, g.ticket, COALESCE(g.id, g.ticket), g.topic_key
        FROM @got AS g
        WHERE g.group_key IS NULL AND (g.expires_at IS NULL OR g.expires_at > @now_at);
        SET @seen = @@ROWCOUNT;
        SET @found_count += @seen;
        -- From here on this call may put out tickets itself.
        IF @turn = 1 AND @found_count < @batch_size AND (@seen < @took OR @is_more = 1)
            SET @last = NEXT VALUE FOR {{ box._ids }};

        -- Bury what is past its time, and what is so behind it in the same topics, in large sets.
        IF EXISTS (SELECT 1 FROM @got AS g WHERE g.group_key IS NULL AND g.expires_at <= @now_at)
        BEGIN
            DELETE FROM @head;
            INSERT INTO @head (lane, ticket)
            SELECT TOP (1000) n.lane, n.ticket
            FROM (
                SELECT DISTINCT g.topic_key FROM @got AS g WHERE g.group_key IS NULL AND g.expires_at <= @now_at
            ) AS t
            CROSS APPLY (
                SELECT TOP (1000) c.lane, c.ticket, c.expires_at, c.group_key
                FROM {{ box.ready }} AS c
                    WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK ({{ key.ix_ready_topic }} (topic_key)))
                WHERE c.topic_key = t.topic_key AND c.ticket < @last
                ORDER BY c.lane, c.ticket
            ) AS n
            WHERE n.group_key IS NULL AND n.expires_at <= @now_at
            ORDER BY n.lane, n.ticket
            OPTION (KEEPFIXED PLAN);

            DELETE r
            OUTPUT
                deleted.lane, deleted.ticket, deleted.id, deleted.expires_at, deleted.topic_key, deleted.group_key
            INTO @got (lane, ticket, id, expires_at, topic_key, group_key)
            FROM @head AS h
            INNER JOIN {{ box.ready }} AS r WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
                ON r.lane = h.lane AND r.ticket = h.ticket
            WHERE r.group_key IS NULL AND r.expires_at <= @now_at
            OPTION (KEEPFIXED PLAN);

            SELECT @ids = {{ arguments.array_of("COALESCE(g.id, g.ticket)") }}, @seen = COUNT(*)
            FROM @got AS g
            WHERE g.group_key IS NULL AND g.expires_at <= @now_at;
            SET @buried_count += @seen;
            EXEC {{ box._bury }} @ids = @ids, @error = NULL, @expired = 1;
            SET @is_more = 1;
        END;

        -- A group's ticket becomes the messages at its head, as many as leave each other ticket a place.
        DELETE FROM @group;
        INSERT INTO @group (group_key, lane, ticket)
        SELECT f.group_key, f.lane, f.ticket
        FROM (
            SELECT
                g.group_key, g.lane, g.ticket,
                ROW_NUMBER() OVER (PARTITION BY g.group_key ORDER BY g.lane, g.ticket) AS place
            FROM @got AS g
            WHERE g.group_key IS NOT NULL
        ) AS f
        WHERE f.place = 1;
        SET @group_count = @@ROWCOUNT;
        IF @group_count > 500
        BEGIN
            -- Every lock takes a place in memory: what is beyond goes back to where it was.
            DELETE FROM @group
            WHERE group_key NOT IN (SELECT TOP (500) g.group_key FROM @group AS g ORDER BY g.lane, g.ticket);
            INSERT INTO {{ box.ready }} (lane, ticket, topic_key, group_key)
            SELECT g.lane, g.ticket, g.topic_key, g.group_key
            FROM @got AS g
            WHERE g.group_key IS NOT NULL AND g.group_key NOT IN (SELECT k.group_key FROM @group AS k)
            OPTION (KEEPFIXED PLAN);
            SET @group_count = 500;
            SET @is_open = 0;
        END;
        IF @group_count > 0
        BEGIN
            SET @mark = NEWID();
            SET @groups = (SELECT g.group_key FROM @group AS g FOR JSON PATH);
            SET @share = (@batch_size - @found_count) / @group_count;
            EXEC @seen = {{ box._claim_groups }}
                @groups = @groups, @share = @share, @allowed = @allowed, @owner_token = @mark, @until_at = @until_at;
            SET @buried_count += @seen;

            INSERT INTO @found (turn, lane, ticket, id, topic_key, group_key)
            SELECT @turn, g.lane, g.ticket, l.id, l.topic_key, l.group_key
            FROM @group AS g
            INNER JOIN {{ box.lease }} AS l WITH (FORCESEEK)
                ON l.group_key = g.group_key AND l.group_key IS NOT NULL
            WHERE l.owner_token = @mark
            OPTION (KEEPFIXED PLAN);
            SET @found_count += @@ROWCOUNT;
        END;

        -- Done when full, when nothing is left that others have not taken, or when this was enough work.
        IF @found_count >= @batch_size
            OR (@is_more = 0 AND @took = @marked)
            OR @buried_count >= 5000
            OR @turn >= 50
            SET @is_open = 0;
    END;

    IF @found_count > 0
    BEGIN
        SET @until_at = DATEADD(SECOND, @lease_seconds, {{ clock.now() }});
        INSERT INTO {{ box.lease }} (id, owner_token, locked_until, topic_key, group_key)
        SELECT f.id, @owner_token, @until_at, f.topic_key, f.group_key
        FROM @found AS f
        WHERE f.group_key IS NULL
        OPTION (KEEPFIXED PLAN);

        UPDATE l
        SET owner_token = @owner_token, locked_until = @until_at
        FROM @found AS f
        INNER JOIN {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK) ON l.id = f.id
        WHERE f.group_key IS NOT NULL AND l.group_key = f.group_key
        OPTION (KEEPFIXED PLAN);
    END;
    -- Now and then somebody folds the tally.
    IF RAND() < 0.03
        EXEC {{ box._tick }};
    COMMIT TRANSACTION;

    SELECT
{{ messages.claimed("@until_at AS locked_until") }}
    FROM @found AS f
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = f.id
    ORDER BY f.turn, f.lane, f.ticket, f.id
    OPTION (KEEPFIXED PLAN);
END;
