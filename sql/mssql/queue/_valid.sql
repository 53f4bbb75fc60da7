-- Whether a message may be enqueued: a yes or no that the planner inlines. _explain tells which rule was broken.
-- The rule that a message breaks, as one row in line with the caller's query, so that it is checked at no cost.
-- returns: boolean; here the column broken, null if no rule is
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER FUNCTION {{ box._valid }}(
    @topic nvarchar(max),
    @payload nvarchar(max),
{% if kind == "inbox" %}
    @source nvarchar(max),
    @message_id nvarchar(max),
{% else %}
    @correlation_id nvarchar(max),
    @dedup_key nvarchar(max),
{% endif %}
    @due_at datetimeoffset(6),
    @group_id nvarchar(max),
    @priority int,
    @collapse_key nvarchar(max),
    @expires_at datetimeoffset(6),
    @headers nvarchar(max),
    @created_at datetimeoffset(6),
    @delay_seconds float
)
RETURNS TABLE
AS
-- LEN passes over trailing blanks, so an end mark is put behind the text, and counts UTF-16 units only under a
-- collation without supplementary characters.
RETURN SELECT CASE
    WHEN @topic IS NULL OR LEN(@topic + N'.') = 1
        THEN N'topic: must not be null or empty'
    WHEN LEN((@topic + N'.') COLLATE Latin1_General_100_BIN2) > 256
        THEN N'topic: must not be longer than 255 characters'
    WHEN @payload IS NULL
        THEN N'payload: must not be null'
{% if kind == "inbox" %}
    WHEN @source IS NULL OR LEN(@source + N'.') = 1
        THEN N'source: must not be null or empty'
    WHEN LEN((@source + N'.') COLLATE Latin1_General_100_BIN2) > 256
        THEN N'source: must not be longer than 255 characters'
    WHEN @message_id IS NULL OR LEN(@message_id + N'.') = 1
        THEN N'message_id: must not be null or empty'
    WHEN LEN((@message_id + N'.') COLLATE Latin1_General_100_BIN2) > 256
        THEN N'message_id: must not be longer than 255 characters'
{% else %}
    WHEN LEN((@correlation_id + N'.') COLLATE Latin1_General_100_BIN2) > 256
        THEN N'correlation_id: must not be longer than 255 characters'
    WHEN LEN(@dedup_key + N'.') = 1
        THEN N'dedup_key: must not be empty'
    WHEN LEN((@dedup_key + N'.') COLLATE Latin1_General_100_BIN2) > 256
        THEN N'dedup_key: must not be longer than 255 characters'
{% endif %}
    WHEN LEN(@group_id + N'.') = 1
        THEN N'group_id: must not be empty'
    WHEN LEN((@group_id + N'.') COLLATE Latin1_General_100_BIN2) > 256
        THEN N'group_id: must not be longer than 255 characters'
    WHEN LEN(@collapse_key + N'.') = 1
        THEN N'collapse_key: must not be empty'
    WHEN LEN((@collapse_key + N'.') COLLATE Latin1_General_100_BIN2) > 256
        THEN N'collapse_key: must not be longer than 255 characters'
    WHEN @priority IS NULL OR @priority NOT BETWEEN -32768 AND 32767
        THEN N'priority: must be from -32768 to 32767'
    WHEN ISJSON(@headers) = 0 OR CHARINDEX(N'{', @headers + N'{') > CHARINDEX(N'[', @headers + N'[')
        THEN N'headers: must be a JSON object'
    WHEN @delay_seconds NOT BETWEEN 0 AND 1000000000
        THEN N'delay_seconds: must be from 0 to 1000000000'
    WHEN @delay_seconds IS NOT NULL AND @due_at IS NOT NULL
        THEN N'delay_seconds: must not be given together with due_at'
END AS broken;
