{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/listing.sql" as listing with context %}

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
CREATE OR ALTER PROCEDURE {{ box.list }}
    @status nvarchar(max),
    @topic nvarchar(max) = NULL,
    @limit int = 100,
    @after_id bigint = 0,
    @group_id nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    -- One that is longer than any is nobody's.
    DECLARE @topic_key nvarchar(257) = LEFT(@topic COLLATE Latin1_General_100_BIN2, 256) + N'.';
    DECLARE @group_key nvarchar(257) = LEFT(@group_id COLLATE Latin1_General_100_BIN2, 256) + N'.';
    DECLARE @wanted nvarchar(10);
    DECLARE @after_no bigint = CASE WHEN @after_id > 0 THEN @after_id ELSE 0 END;
    DECLARE @shown int = 0;
    DECLARE @looked int = 0;
    DECLARE @step int = @limit;
    DECLARE @room int;
    DECLARE @seen int;
    DECLARE @is_open bit = 1;
    DECLARE @is_over bit = 1;
    DECLARE @last_id bigint;
    DECLARE @at_lane int;
    DECLARE @from_lane int = -32769;
    DECLARE @lane TABLE (lane int NOT NULL PRIMARY KEY, next_lane int NOT NULL);
    DECLARE @found TABLE (place int IDENTITY (1, 1) NOT NULL PRIMARY KEY, no bigint NOT NULL, id bigint);
    DECLARE @page TABLE (id bigint NOT NULL PRIMARY KEY);

{% if kind == "inbox" %}
    IF @status IS NULL OR (@status + N'.') COLLATE Latin1_General_100_BIN2
        NOT IN (N'Seen.', N'Processing.', N'Done.', N'Dead.', N'Expired.', N'Cancelled.')
    {{ arguments.reject("status", "must be Seen, Processing, Done, Dead, Expired or Cancelled") }}
{% else %}
    IF @status IS NULL OR (@status + N'.') COLLATE Latin1_General_100_BIN2
        NOT IN (N'Ready.', N'InProgress.', N'Done.', N'Failed.', N'Expired.', N'Cancelled.')
    {{ arguments.reject("status", "must be Ready, InProgress, Done, Failed, Expired or Cancelled") }}
{% endif %}
    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}
    SET @wanted = @status;

    IF @wanted = N'{{ "Processing" if kind == "inbox" else "Ready" }}'
    BEGIN
        WHILE @from_lane < 32769
        BEGIN
            SET @at_lane = ISNULL(
                (SELECT MIN(r.lane) FROM {{ box.ready }} AS r WITH (FORCESEEK) WHERE r.lane > @from_lane), 32769
            );
            INSERT INTO @lane (lane, next_lane) VALUES (@from_lane, @at_lane);
            SET @from_lane = @at_lane;
        END;
    END;

    WHILE @is_open = 1
    BEGIN
        SET @room = CASE WHEN @step < 10000 - @looked THEN @step ELSE 10000 - @looked END;
        DELETE FROM @found;
        IF @wanted = N'Done'
            INSERT INTO @found (no, id)
            {{ listing.in_order(box.done, key.pk_done) | indent(8) }};
{% if kind == "inbox" %}
        ELSE IF @wanted = N'Seen'
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.seen()) | indent(8) }};
        ELSE IF @wanted = N'Processing' AND @group_key IS NOT NULL
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.of_group()) | indent(8) }};
        ELSE IF @wanted = N'Processing' AND @topic_key IS NOT NULL
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.waiting(true)) | indent(8) }};
        ELSE IF @wanted = N'Processing'
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.waiting(false)) | indent(8) }};
{% else %}
        ELSE IF @wanted = N'Ready' AND @group_key IS NOT NULL
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.group_members()) | indent(8) }};
        ELSE IF @wanted = N'Ready' AND @topic_key IS NOT NULL
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.waiting(true)) | indent(8) }};
        ELSE IF @wanted = N'Ready'
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.waiting(false)) | indent(8) }};
        ELSE IF @wanted = N'InProgress' AND @group_key IS NOT NULL
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.group_leases()) | indent(8) }};
        ELSE IF @wanted = N'InProgress'
            INSERT INTO @found (no, id)
            {{ listing.in_order(box.lease, key.pk_lease) | indent(8) }};
{% endif %}
        ELSE IF @topic_key IS NOT NULL
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.dead(true)) | indent(8) }};
        ELSE
            INSERT INTO @found (no, id)
            {{ listing.merged(listing.dead(false)) | indent(8) }};
        SET @seen = @@ROWCOUNT;

        INSERT INTO @page (id)
        SELECT TOP (@limit - @shown) m.id
        FROM @found AS f
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = f.id
        WHERE (@topic_key IS NULL OR m.topic + N'.' = @topic_key)
            AND (@group_key IS NULL OR m.group_id + N'.' = @group_key)
        ORDER BY m.id;
        SET @shown += @@ROWCOUNT;
        SET @looked += @room;
        SET @step *= 2;
        IF @shown = @limit OR @seen < @room
            SET @is_open = 0;
        ELSE
            SET @after_no = (SELECT MAX(f.no) FROM @found AS f);
        IF @is_open = 1 AND @looked = 10000
        BEGIN
            SET @last_id = @after_no;
            SET @is_open = 0;
            SET @is_over = 0;
        END;
    END;
    IF @last_id IS NULL
        SET @last_id = (SELECT MAX(p.id) FROM @page AS p);

    -- What has left the status since it was found is not shown; a full page of which some is missing ends with an id too.
    WITH shown AS (
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
        FROM @page AS p
        INNER JOIN {{ box.messages }} AS v ON v.id = p.id
        WHERE v.status = @wanted
    )

    SELECT s.*
    FROM shown AS s
    UNION ALL
    SELECT @last_id, {{ "NULL, " * 17 }}NULL
    WHERE @is_over = 0 OR (@shown = @limit AND (SELECT COUNT(*) FROM shown) < @limit)
    ORDER BY id;
END;
