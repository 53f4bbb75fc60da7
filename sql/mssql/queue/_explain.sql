-- Raises the rule that a message broke which _valid has turned away.
-- returns: boolean; never, it raises
-- errors: PB001
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._explain }}
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
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @broken nvarchar(2048) = (
        SELECT v.broken
{% if kind == "inbox" %}
        FROM {{ box._valid }} (
            @topic, @payload, @source, @message_id, @due_at, @group_id, @priority, @collapse_key, @expires_at,
            @headers, @created_at, @delay_seconds
        ) AS v
{% else %}
        FROM {{ box._valid }} (
            @topic, @payload, @correlation_id, @dedup_key, @due_at, @group_id, @priority, @collapse_key, @expires_at,
            @headers, @created_at, @delay_seconds
        ) AS v
{% endif %}
    );
    THROW 51001, @broken, 1;
END;
