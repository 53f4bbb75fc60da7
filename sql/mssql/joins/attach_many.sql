-- after: _nudge
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/locks.sql" as locks with context %}

-- Makes messages of the outbox steps of a join, all or none, as join_attach does with one: those that are over already
-- count at once, those attached before are passed over. Its cost is that of the messages, however large the join is.
-- What others may be working on is taken hold of in id order. Plain messages that wait where they were enqueued are so in
-- one statement.
-- join_id: not null
-- message_ids: not null, and none of them null; repeated ones count once
-- returns: attached; how many were not attached before
-- errors: PB001, PB002, PB003
-- locks: join, group, lease, message
-- role: producer
CREATE OR ALTER PROCEDURE {{ db.join_attach_many }}
    @join_id uniqueidentifier,
    @message_ids nvarchar(max)
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @now_at datetime2(6);
    DECLARE @id bigint;
    DECLARE @state nvarchar(10);
    DECLARE @status nvarchar(10);
    DECLARE @attached_steps int;
    DECLARE @expected_steps int;
    DECLARE @group_key nvarchar(256);
    DECLARE @attached int;
    DECLARE @completed int;
    DECLARE @failed int;
    DECLARE @refusal nvarchar(2048);
    DECLARE @new TABLE (message_id uniqueidentifier NOT NULL PRIMARY KEY);
    DECLARE @step TABLE (
        id bigint NOT NULL PRIMARY KEY,
        message_id uniqueidentifier NOT NULL,
        lane int NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2,
        state nvarchar(10) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @busy TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );

    IF @join_id IS NULL
    {{ arguments.reject("join_id", "must not be null") }}
    -- LEN passes over trailing blanks, so an end mark is put behind the text.
    IF @message_ids IS NULL
        OR {{ arguments.not_array("@message_ids") }}
        OR EXISTS (
            SELECT 1
            FROM OPENJSON(CASE WHEN ISJSON(@message_ids) = 1 THEN @message_ids ELSE N'[]' END) AS j
            WHERE j.type <> 1
                OR LEN((j.value + N'.') COLLATE Latin1_General_100_BIN2) <> 37
                OR TRY_CONVERT(uniqueidentifier, j.value) IS NULL
        )
    {{ arguments.reject("message_ids", "must be a JSON array of uuids, none of them null") }}

    BEGIN TRANSACTION;
    {{ locks.wait(locks.join("@join_id"), "join") }}
    SELECT @status = j.status, @attached_steps = j.attached_steps, @expected_steps = j.expected_steps
    FROM {{ db.join }} AS j WITH (FORCESEEK)
    WHERE j.join_id = @join_id;
    IF @status IS NULL
    {{ arguments.refuse(51002, "join_id: no such join; it must be what join_start answered, in this schema") }}

    INSERT INTO @new (message_id)
    SELECT u.message_id
    FROM (SELECT DISTINCT CONVERT(uniqueidentifier, j.value) AS message_id FROM OPENJSON(@message_ids) AS j) AS u
    WHERE NOT EXISTS (
        SELECT 1
        FROM {{ db.join_member }} AS jm WITH (FORCESEEK)
        WHERE jm.join_id = @join_id AND jm.message_id = u.message_id
    );
    SET @attached = @@ROWCOUNT;

    INSERT INTO @step (id, message_id, lane, group_key, state)
    SELECT
        m.id, n.message_id, 0 - m.priority, m.group_id + N'.',
        CASE
            WHEN EXISTS (SELECT 1 FROM {{ db.outbox_done }} AS d WITH (FORCESEEK) WHERE d.id = m.id) THEN N'completed'
            WHEN EXISTS (SELECT 1 FROM {{ db.outbox_dead }} AS d WITH (FORCESEEK) WHERE d.id = m.id) THEN N'failed'
        END
    FROM @new AS n
    INNER JOIN {{ db.outbox_message }} AS m WITH (FORCESEEK) ON m.message_id = n.message_id
    OPTION (KEEPFIXED PLAN);
    IF @@ROWCOUNT < @attached
    {{ arguments.refuse(51002, "message_ids: no such message; each must be one of this outbox, enqueued before or in this transaction") }}
    SET @refusal = CONCAT(N'join_id: the join is ', @status, N'; start another one');
    IF @attached > 0 AND @status <> N'Pending'
    {{ arguments.refuse(51003, "@refusal") }}
    IF @attached > 0 AND @attached_steps + @attached > @expected_steps
    {{ arguments.refuse(51003, "join_id: more than the expected steps would be attached; start the join with more, or without a number") }}

    -- Where all of them are plain and wait where they were enqueued, the order of the rows is that of the ids.
    IF NOT EXISTS (
        SELECT 1
        FROM @step AS s
        WHERE s.state IS NULL
            AND (
                s.lane <> 0
                OR s.group_key IS NOT NULL
                OR NOT EXISTS (
                    SELECT 1
                    FROM {{ db.outbox_ready }} AS r WITH (FORCESEEK)
                    WHERE r.lane = 0 AND r.ticket = s.id AND r.id IS NULL AND r.group_key IS NULL
                )
            )
    )
    BEGIN
        -- A write that changes nothing locks the row in every engine.
        UPDATE r
        SET expires_at = r.expires_at
        FROM {{ db.outbox_ready }} AS r WITH (ROWLOCK, FORCESEEK)
        WHERE r.lane = 0
            AND r.id IS NULL
            AND r.group_key IS NULL
            AND r.ticket IN (SELECT s.id FROM @step AS s WHERE s.state IS NULL);

        -- Those that are still there after that are held.
        UPDATE @step
        SET state = N'pending'
        WHERE state IS NULL
            AND id IN (
                SELECT r.ticket
                FROM {{ db.outbox_ready }} AS r WITH (FORCESEEK)
                WHERE r.lane = 0 AND r.id IS NULL AND r.group_key IS NULL AND r.ticket IN (SELECT s.id FROM @step AS s)
            )
        OPTION (KEEPFIXED PLAN);
    END;

    INSERT INTO @busy (id, group_key)
    SELECT s.id, s.group_key
    FROM @step AS s
    WHERE s.state IS NULL;
    {{ groups.wait_all("@busy", "outbox") }}
    SET @id = (SELECT MIN(b.id) FROM @busy AS b);
    WHILE @id IS NOT NULL
    BEGIN
        EXEC {{ db._outbox_hold }} @id = @id, @state = @state OUTPUT;
        UPDATE @step SET state = @state WHERE id = @id;
        SET @id = (SELECT MIN(b.id) FROM @busy AS b WHERE b.id > @id);
    END;
    -- Deleted, or collapsed, while this waited for it.
    IF EXISTS (SELECT 1 FROM @step AS s WHERE s.state IS NULL)
    {{ arguments.refuse(51002, "message_ids: no such message; each must be one of this outbox, enqueued before or in this transaction") }}

    IF @attached > 0
    BEGIN
        SET @now_at = {{ clock.now() }};
        INSERT INTO {{ db.join_member }} (join_id, message_id, id, counted, attached_at)
        SELECT @join_id, s.message_id, s.id, NULLIF(s.state, N'pending'), @now_at
        FROM @step AS s
        OPTION (KEEPFIXED PLAN);

        UPDATE {{ db.join }} WITH (ROWLOCK)
        SET attached_steps = attached_steps + @attached, last_updated_at = @now_at
        WHERE join_id = @join_id;

        SELECT
            @completed = COUNT(CASE WHEN s.state = N'completed' THEN 1 END),
            @failed = COUNT(CASE WHEN s.state = N'failed' THEN 1 END)
        FROM @step AS s;
        IF @completed + @failed > 0
        BEGIN
            INSERT INTO {{ db.join_tally }} (join_id, completed, failed, created_at)
            VALUES (@join_id, @completed, @failed, @now_at);
            EXEC {{ db._join_nudge }} @join_id = @join_id;
        END;
    END;
    COMMIT TRANSACTION;

    SELECT @attached AS attached;
END;
