-- after: _bury, _regroup, _take

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/settling.sql" as settling with context %}

-- Calls messages off that are not over yet, whether they wait, for a time or in a group, or are leased: they are
-- Cancelled, a failed step of their joins, and stay with the dead ones until a replay or a discard. The owner of a
-- leased one has lost its lease. Whoever comes first to a message decides; one that somebody else is just moving is
-- waited for. All others, and repeated ids, are passed over, and in an inbox what was never enqueued.
-- ids: not null
-- reason: kept as last_error unless null or empty, up to 16384 characters
-- returns: affected
-- errors: PB001
-- locks: group, lease, message
-- role: operator
CREATE OR ALTER PROCEDURE {{ box.cancel }}
    @ids nvarchar(max),
    @reason nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @affected int = 0;
    DECLARE @chosen nvarchar(max);
    DECLARE @taken nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );

    {{ settling.check_ids() }}
    {{ settling.wanted() }}
    SET @chosen = {{ settling.array(table="@wanted") }};
    -- LEN passes over trailing blanks, so an end mark is put behind the text.
    IF LEN(@reason + N'.') = 1
        SET @reason = NULL;

    BEGIN TRANSACTION;
    IF @chosen IS NOT NULL
        EXEC {{ box._take }} @ids = @chosen, @taken = @taken OUTPUT;
    IF @taken IS NOT NULL
    BEGIN
        EXEC {{ box._bury }} @ids = @taken, @error = @reason, @expired = 0, @cancelled = 1;

        INSERT INTO @gone (id, group_key)
        SELECT m.id, m.group_id + N'.'
        FROM OPENJSON(@taken) AS j
        INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = CONVERT(bigint, j.value)
        OPTION (KEEPFIXED PLAN);
        SET @affected = @@ROWCOUNT;

        SET @groups = {{ settling.groups() }};
        IF @groups IS NOT NULL
            EXEC {{ box._regroup }} @groups = @groups;
    END;
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
