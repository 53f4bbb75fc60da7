{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Joins with their counters, a page at a time.
-- tenant_id: only this one's; null for all
-- status: Pending, Completed, Failed or Cancelled; null for all
-- limit: from 1 to 10000
-- after: the last join of the page before
-- older_than_seconds: from 0 to 1000000000; only joins begun longer ago: those that may be stuck
-- returns: join_id, tenant_id, expected_steps, completed_steps, failed_steps, status, metadata, created_at, last_updated_at; oldest first
-- errors: PB001, PB002
-- locks: none
-- role: viewer
CREATE OR ALTER PROCEDURE {{ db.join_list }}
    @tenant_id nvarchar(max) = NULL,
    @status nvarchar(max) = NULL,
    @limit int = 100,
    @after uniqueidentifier = NULL,
    @older_than_seconds decimal(19, 3) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @after_no bigint = 0;
    DECLARE @until_at datetime2(6);
    DECLARE @tenant_key nvarchar(256);
    DECLARE @page TABLE (no bigint NOT NULL PRIMARY KEY, join_id uniqueidentifier NOT NULL);

    IF (@status + N'.') COLLATE Latin1_General_100_BIN2 NOT IN (N'Pending.', N'Completed.', N'Failed.', N'Cancelled.')
    {{ arguments.reject("status", "must be Pending, Completed, Failed or Cancelled") }}
    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}
    IF @older_than_seconds NOT BETWEEN 0 AND 1000000000
    {{ arguments.reject("older_than_seconds", "must be from 0 to 1000000000") }}
    IF @after IS NOT NULL
    BEGIN
        SET @after_no = (SELECT j.no FROM {{ db.join }} AS j WHERE j.join_id = @after);
        IF @after_no IS NULL
        {{ arguments.raise(51002, "after: no such join; it must be a join_id of the page before") | indent(4) }}
    END;
    IF @older_than_seconds IS NOT NULL
        SET @until_at = DATEADD(
            MILLISECOND, -CONVERT(int, (@older_than_seconds - FLOOR(@older_than_seconds)) * 1000),
            DATEADD(SECOND, -CONVERT(int, FLOOR(@older_than_seconds)), {{ clock.now() }})
        );

    -- No tenant is too long for its key.
    IF @tenant_id IS NULL OR LEN((@tenant_id + N'.') COLLATE Latin1_General_100_BIN2) <= 256
    BEGIN
        SET @tenant_key = @tenant_id + N'.';
        INSERT INTO @page (no, join_id)
        SELECT TOP (@limit) j.no, j.join_id
        FROM {{ db.join }} AS j
        WHERE j.no > @after_no
            AND (@tenant_key IS NULL OR j.tenant_key = @tenant_key)
            AND (@status IS NULL OR j.status = CONVERT(nvarchar(10), @status))
            AND (@until_at IS NULL OR j.created_at < @until_at)
        ORDER BY j.no
        -- Which index serves depends on which arguments are given.
        OPTION (RECOMPILE);
    END;

    SELECT
        v.join_id, v.tenant_id, v.expected_steps, v.completed_steps, v.failed_steps, v.status, v.metadata, v.created_at,
        v.last_updated_at
    FROM @page AS p
    INNER JOIN {{ db.outbox_joins }} AS v ON v.join_id = p.join_id
    ORDER BY p.no;
END;
