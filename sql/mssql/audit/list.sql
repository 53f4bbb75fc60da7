{% import "macros/arguments.sql" as arguments with context %}

-- Changes that were noted, the latest first, a page at a time.
-- actor: only this one's; null for all
-- action: only this one; null for all
-- limit: from 1 to 10000
-- before_id: the last id of the page before
-- returns: id, changed_at, actor, action, subject, affected, detail; highest id first
-- errors: PB001
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ db.audit_list }}
    @actor nvarchar(max) = NULL,
    @action nvarchar(max) = NULL,
    @limit int = 100,
    @before_id bigint = NULL
AS
BEGIN
    {{ arguments.begin() }}

    IF @limit IS NULL OR @limit NOT BETWEEN 1 AND 10000
    {{ arguments.reject("limit", "must be from 1 to 10000") }}

    -- Blanks at the end count, so an end mark is put behind a text where it is compared.
    SELECT TOP (@limit) a.id, a.changed_at, a.actor, a.action, a.subject, a.affected, a.detail
    FROM {{ db.audit }} AS a
    WHERE (@before_id IS NULL OR a.id < @before_id)
        AND (@actor IS NULL OR (a.actor = CONVERT(nvarchar(255), @actor) AND a.actor + N'.' = @actor + N'.'))
        AND (@action IS NULL OR (a.action = CONVERT(nvarchar(64), @action) AND a.action + N'.' = @action + N'.'))
    ORDER BY a.id DESC
    -- Which index serves depends on which arguments are given.
    OPTION (RECOMPILE);
END;
