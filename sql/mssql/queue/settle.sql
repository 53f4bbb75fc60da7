-- after: _bury, _lock_groups, _put_back, _regroup, claim

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/groups.sql" as groups with context %}
{% import "macros/times.sql" as times with context %}
{% import "macros/texts.sql" as texts with context %}
{% import "macros/messages.sql" as messages with context %}
{% import "macros/records.sql" as records with context %}

{#- What a record o says of its list, and an element e of that. -#}
{% macro is_listing() -%}
CASE WHEN o.ids IS NULL THEN 0 ELSE 1 END
{%- endmacro %}

{% macro is_bad_list() -%}
CASE
            WHEN CHARINDEX(N'[', o.ids + N'[') > CHARINDEX(N'{', o.ids + N'{') THEN 1
            WHEN o.ids IS NULL AND o.ids_text IS NOT NULL THEN 1
            ELSE 0
        END
{%- endmacro %}

{% macro listed_id() -%}
CASE WHEN e.type IN (1, 2) THEN TRY_CONVERT(bigint, e.value) END
{%- endmacro %}

-- Settles a batch, each message its own way, and claims the next: a busy worker's one round trip a batch.
-- All or nothing. The first record of an id counts; messages that this owner does not hold are passed over.
-- owner_token: not the nil uuid
-- outcomes: a JSON array of objects with id (or ids, an array of them), result (ack, abandon, retry, release or fail), error (needed to fail), delay_seconds and max_attempts, as those routines take them
-- claim_batch: from 0 to 10000
-- lease_seconds: from 1 to 86400
-- topics: of the next claim; null for all
{% if kind == "inbox" %}
-- returns: id, message_id, source, topic, payload, hash, group_id, priority, headers, attempt, first_seen_at, last_seen_at, due_at, expires_at, last_error, locked_until
{% else %}
-- returns: id, message_id, topic, payload, correlation_id, group_id, priority, headers, attempt, created_at, due_at, expires_at, last_error, locked_until
{% endif %}
-- errors: PB001, PB003
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.settle }}
    @owner_token uniqueidentifier,
    @outcomes nvarchar(max),
    @claim_batch int = 0,
    @lease_seconds int = 30,
    @topics nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @now_at datetime2(6);
    DECLARE @level nvarchar(60);
    DECLARE @base float;
    DECLARE @cap float;
    DECLARE @limit_attempts int;
    DECLARE @ids nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @raw TABLE (
        ordinal int NOT NULL PRIMARY KEY,
        type int NOT NULL,
        id nvarchar(max) COLLATE Latin1_General_100_BIN2,
        ids nvarchar(max) COLLATE Latin1_General_100_BIN2,
        is_listing bit NOT NULL,
        is_bad_list bit NOT NULL,
        result nvarchar(max) COLLATE Latin1_General_100_BIN2,
        error nvarchar(max) COLLATE Latin1_General_100_BIN2,
        delay_seconds nvarchar(max) COLLATE Latin1_General_100_BIN2,
        max_attempts nvarchar(max) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @listed TABLE (ordinal int NOT NULL, id bigint);
    DECLARE @outcome TABLE (
        id bigint NOT NULL PRIMARY KEY,
        result nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
        error nvarchar(max) COLLATE Latin1_General_100_BIN2,
        delay_seconds decimal(19, 3),
        max_attempts int
    );
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @tried TABLE (
        id bigint NOT NULL PRIMARY KEY,
        attempt int NOT NULL,
        wait_seconds float NOT NULL,
        is_dying bit NOT NULL
    );

    IF @claim_batch IS NULL OR @claim_batch NOT BETWEEN 0 AND 10000
    {{ arguments.reject("claim_batch", "must be from 0 to 10000") }}
    IF @owner_token IS NULL
        OR @owner_token = '00000000-0000-0000-0000-000000000000'
        OR @lease_seconds IS NULL OR @lease_seconds NOT BETWEEN 1 AND 86400
    {{ arguments.check_by(
        db._check_owner ~ " @owner_token = @owner_token, @lease_seconds = @lease_seconds, @batch_size = 1"
    ) }}
    IF @outcomes IS NULL OR {{ arguments.not_array("@outcomes") }}
    {{ arguments.reject("outcomes", "must be a JSON array") }}
    -- What the claim needs is looked up before anything is written.
    IF @claim_batch > 0 AND {{ arguments.not_array("@topics") }}
    {{ arguments.reject("topics", "must be a JSON array") }}
    IF @claim_batch > 0 AND SERVERPROPERTY('Babelfish') IS NOT NULL
    BEGIN
        {{ groups.read_level() | indent(4) }}
        IF @level <> N'read committed'
        {{ arguments.raise(51003, "claim: needs a READ COMMITTED transaction; claim outside of yours, or set its isolation level") | indent(4) }}
    END;

    -- Each record is read once. OPENJSON answers null for an array or object, which must not pass for a number that was
    -- left out: so it is read as its text. Babelfish has to look for what may be longer than 4000 characters by itself.
    IF SERVERPROPERTY('Babelfish') IS NULL
    BEGIN
        INSERT INTO @raw (ordinal, type, id, ids, is_listing, is_bad_list, result, error, delay_seconds, max_attempts)
        SELECT
            CONVERT(int, j.[key]), j.type, o.id, o.ids,
            {{ is_listing() }},
            {{ is_bad_list() | indent(4) }},
            o.result, COALESCE(o.error, o.error_json), COALESCE(o.delay_seconds, o.delay_seconds_json),
            COALESCE(o.max_attempts, o.max_attempts_json)
        FROM OPENJSON(@outcomes) AS j
        CROSS APPLY OPENJSON({{ records.record() }}) WITH (
            id nvarchar(max) '$.id',
            ids nvarchar(max) '$.ids' AS JSON,
            ids_text nvarchar(max) '$.ids',
            result nvarchar(max) '$.result',
            error nvarchar(max) '$.error',
            error_json nvarchar(max) '$.error' AS JSON,
            delay_seconds nvarchar(max) '$.delay_seconds',
            delay_seconds_json nvarchar(max) '$.delay_seconds' AS JSON,
            max_attempts nvarchar(max) '$.max_attempts',
            max_attempts_json nvarchar(max) '$.max_attempts' AS JSON
        ) AS o;

        INSERT INTO @listed (ordinal, id)
        SELECT r.ordinal, {{ listed_id() }}
        FROM @raw AS r
        CROSS APPLY OPENJSON(r.ids) AS e
        WHERE r.is_listing = 1;
    END
    ELSE
    BEGIN
        INSERT INTO @raw (ordinal, type, id, is_listing, is_bad_list, result, error, delay_seconds, max_attempts)
        SELECT
            CONVERT(int, j.[key]), j.type, o.id,
            {{ is_listing() }},
            {{ is_bad_list() | indent(4) }},
            o.result,
            {{ 'error' | json_long_text(record=records.record()) }},
            COALESCE(o.delay_seconds, o.delay_seconds_json), COALESCE(o.max_attempts, o.max_attempts_json)
        FROM OPENJSON(@outcomes) AS j
        CROSS APPLY OPENJSON({{ records.record() }}) WITH (
            id nvarchar(max) '$.id',
            ids nvarchar(max) '$.ids' AS JSON,
            ids_text nvarchar(max) '$.ids',
            result nvarchar(max) '$.result',
            delay_seconds nvarchar(max) '$.delay_seconds',
            delay_seconds_json nvarchar(max) '$.delay_seconds' AS JSON,
            max_attempts nvarchar(max) '$.max_attempts',
            max_attempts_json nvarchar(max) '$.max_attempts' AS JSON
        ) AS o;

        -- It cuts the text of an array that is told a column of its own, so here that stays in its record.
        IF EXISTS (SELECT 1 FROM @raw AS r WHERE r.is_listing = 1)
            INSERT INTO @listed (ordinal, id)
            SELECT CONVERT(int, j.[key]), {{ listed_id() }}
            FROM OPENJSON(@outcomes) AS j
            CROSS APPLY OPENJSON({{ records.record() }}) AS o
            CROSS APPLY OPENJSON(CASE WHEN o.type = 4 THEN o.value ELSE N'[]' END) AS e
            WHERE o.[key] = N'ids';
    END;
    IF EXISTS (
        SELECT 1
        FROM @raw AS r
        WHERE r.type <> 5
            OR r.is_bad_list = 1
            OR (r.id IS NULL AND r.is_listing = 0)
            OR (r.id IS NOT NULL AND (r.is_listing = 1 OR TRY_CONVERT(bigint, r.id) IS NULL))
            OR r.result IS NULL
            OR r.result + N'.' NOT IN (N'ack.', N'abandon.', N'retry.', N'release.', N'fail.')
            OR (r.result = N'fail' AND r.error IS NULL)
            OR {{ records.is_no("float", "r.delay_seconds") }}
            OR TRY_CONVERT(float, r.delay_seconds) NOT BETWEEN 0 AND 1000000000
            OR (TRY_CONVERT(float, r.delay_seconds) = 0 AND r.result <> N'release')
            OR {{ records.is_no("int", "r.max_attempts") }}
            OR TRY_CONVERT(int, r.max_attempts) < 0
    )
        OR EXISTS (SELECT 1 FROM @listed AS i WHERE i.id IS NULL)
    {{ arguments.reject(
        "outcomes",
        "every record needs an id, or an array ids, and a result of ack, abandon, retry, release or fail; "
        ~ "a fail needs an error; delay_seconds must be above 0, to release also 0, and at most 1000000000; "
        ~ "max_attempts must not be negative"
    ) }}

    INSERT INTO @outcome (id, result, error, delay_seconds, max_attempts)
    SELECT f.id, f.result, f.error, f.delay_seconds, f.max_attempts
    FROM (
        SELECT
            e.id, r.result, r.error,
            CONVERT(decimal(19, 3), TRY_CONVERT(float, r.delay_seconds)) AS delay_seconds,
            TRY_CONVERT(int, r.max_attempts) AS max_attempts,
            ROW_NUMBER() OVER (PARTITION BY e.id ORDER BY r.ordinal) AS no
        FROM (
            SELECT s.ordinal, CONVERT(bigint, s.id) AS id
            FROM @raw AS s
            WHERE s.id IS NOT NULL
            UNION ALL
            SELECT i.ordinal, i.id
            FROM @listed AS i
        ) AS e
        INNER JOIN @raw AS r ON r.ordinal = e.ordinal
    ) AS f
    WHERE f.no = 1;

    BEGIN TRANSACTION;
    IF {{ settling.any_group_is_held() }}
    BEGIN
        SET @ids = ISNULL((SELECT {{ arguments.array_of("o.id") }} FROM @outcome AS o), N'[]');
        EXEC {{ box._lock_groups }} @owner_token = @owner_token, @ids = @ids;
    END;

    {{ settling.take(
        "deleted.id, deleted.topic_key, deleted.group_key", "id, topic_key, group_key",
        of="SELECT o.id FROM @outcome AS o"
    ) }}

    IF @@ROWCOUNT > 0
    BEGIN
        SET @now_at = {{ clock.now() }};

        -- Messages first, what is done behind them: in the same order as everybody else.
        IF EXISTS (SELECT 1 FROM @outcome AS o WHERE o.result <> N'ack')
        BEGIN
            {{ times.read_backoff() | indent(8) }}

            INSERT INTO @tried (id, attempt, wait_seconds, is_dying)
            SELECT
                m.id,
                CASE WHEN o.result = N'release' THEN m.attempt ELSE m.attempt + 1 END,
                {{ times.backoff("o.delay_seconds") | indent(16) }},
                CASE WHEN o.result = N'retry' THEN {{ settling.is_dying("ISNULL(o.max_attempts, @limit_attempts)") }} ELSE 0 END
            FROM @gone AS g
            INNER JOIN @outcome AS o ON o.id = g.id
            INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
            WHERE o.result IN (N'abandon', N'retry') OR (o.result = N'release' AND o.delay_seconds > 0)
            OPTION (KEEPFIXED PLAN);

            UPDATE m
            SET
                attempt = ISNULL(t.attempt, m.attempt),
                due_at = CASE WHEN t.is_dying = 0 THEN {{ times.after("@now_at", "t.wait_seconds") | indent(16) }} ELSE m.due_at END,
                last_error = CASE
                    WHEN o.result = N'fail' OR (o.result <> N'release' AND LEN(o.error + N'.') > 1)
                        THEN {{ texts.cut("o.error") | indent(24) }}
                    ELSE m.last_error
                END
            FROM @gone AS g
            INNER JOIN @outcome AS o ON o.id = g.id
            INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = g.id
            LEFT JOIN @tried AS t ON t.id = g.id
            WHERE o.result = N'fail' OR t.id IS NOT NULL
            OPTION (KEEPFIXED PLAN);

            -- From here on they are like those that fail.
            UPDATE @outcome
            SET result = N'fail'
            WHERE id IN (SELECT t.id FROM @tried AS t WHERE t.is_dying = 1);

            SET @ids = (
                SELECT {{ arguments.array_of("g.id") }}
                FROM @gone AS g
                INNER JOIN @outcome AS o ON o.id = g.id
                WHERE o.result = N'fail'
            );
            IF @ids IS NOT NULL
                EXEC {{ box._bury }} @ids = @ids, @error = NULL, @expired = 0;
        END;

        INSERT INTO {{ box.done }} (id, processed_at, processed_by)
        SELECT g.id, @now_at, @owner_token
        FROM @gone AS g
        INNER JOIN @outcome AS o ON o.id = g.id
        WHERE o.result = N'ack'
        OPTION (KEEPFIXED PLAN);

        INSERT INTO {{ box.tally }} (topic_key, done)
        SELECT g.topic_key, COUNT(*)
        FROM @gone AS g
        INNER JOIN @outcome AS o ON o.id = g.id
        WHERE o.result = N'ack'
        GROUP BY g.topic_key
        OPTION (KEEPFIXED PLAN);
{% if box_name == "outbox" %}

        IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))
        BEGIN
            SET @ids = (
                SELECT {{ arguments.array_of("g.id") }}
                FROM @gone AS g
                INNER JOIN @outcome AS o ON o.id = g.id
                WHERE o.result = N'ack'
            );
            IF @ids IS NOT NULL
                EXEC {{ db._join_count }} @ids = @ids, @state = N'completed';
        END;
{% endif %}

        SET @ids = (
            SELECT {{ arguments.array_of("g.id") }}
            FROM @gone AS g
            INNER JOIN @outcome AS o ON o.id = g.id
            WHERE o.result IN (N'abandon', N'retry', N'release')
        );
        IF @ids IS NOT NULL
            EXEC {{ box._put_back }} @ids = @ids;

        -- Putting members back gave their groups a ticket already.
        SET @groups = (
            SELECT g.group_key
            FROM @gone AS g
            INNER JOIN @outcome AS o ON o.id = g.id
            WHERE g.group_key IS NOT NULL
            GROUP BY g.group_key
            HAVING MAX(CASE WHEN o.result IN (N'abandon', N'retry', N'release') THEN 1 ELSE 0 END) = 0
            FOR JSON PATH
        );
        IF @groups IS NOT NULL
            EXEC {{ box._regroup }} @groups = @groups;
    END;

    IF @claim_batch > 0
        EXEC {{ box.claim }}
            @owner_token = @owner_token, @lease_seconds = @lease_seconds, @batch_size = @claim_batch, @topics = @topics;
    COMMIT TRANSACTION;

    IF @claim_batch = 0
        SELECT TOP (0)
{{ messages.claimed("l.locked_until") | indent(4, first=true) }}
        FROM {{ box.message }} AS m
        INNER JOIN {{ box.lease }} AS l ON l.id = m.id;
END;
