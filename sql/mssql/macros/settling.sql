{#-
What routines that end or move an owner's leases have in common.

    {{ settling.check() }}                        -- of @owner_token and @ids
    {{ settling.wanted() }}                       -- @wanted, the ids, each once; declared by the caller

    BEGIN TRANSACTION;
    EXEC {{ box._lock_groups }} …
    {{ settling.take("deleted.id", "id") }}       -- into @gone; what it answers is what the caller has
-#}
{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}
{% import "macros/texts.sql" as texts with context %}
{% import "macros/times.sql" as times with context %}

{% macro check() -%}
    IF @owner_token IS NULL
        OR @owner_token = '00000000-0000-0000-0000-000000000000'
        OR @ids IS NULL
        OR {{ arguments.not_ids("@ids") }}
    {{ arguments.check_by(db._check_settling ~ " @owner_token = @owner_token, @ids = @ids") }}
{%- endmacro %}

{#- The same for operators' routines, which have no owner. -#}
{% macro check_ids() -%}
    IF @ids IS NULL
    {{ arguments.reject("ids", "must not be null") }}
    IF {{ arguments.not_ids("@ids") }}
    {{ arguments.reject("ids", "must be a JSON array of whole numbers") }}
{%- endmacro %}

{% macro wanted() -%}
    INSERT INTO @wanted (id)
    {{ arguments.ids_of("@ids") }};
{%- endmacro %}

{#- Without a join: on Babelfish that would lose the leases that somebody has just extended or held. -#}
{% macro take(columns, names, of="SELECT w.id FROM @wanted AS w") -%}
    DELETE l
    OUTPUT {{ columns }} INTO @gone ({{ names }})
    FROM {{ box.lease }} AS l WITH (ROWLOCK, FORCESEEK)
    WHERE l.owner_token = @owner_token AND l.id IN ({{ of }})
    OPTION (KEEPFIXED PLAN);
{%- endmacro %}

{#-
Messages of these rows' topics have become dead, or with a minus are so no more: noted in the tally in the transaction that
moves them. Dead ones that were never enqueued have no topic and are not counted.
-#}
{% macro count_dead(table, sign="") -%}
    INSERT INTO {{ box.tally }} (topic_key, done, dead)
    SELECT g.topic_key, 0, {{ sign }}COUNT(*)
    FROM {{ table }} AS g
    WHERE g.topic_key IS NOT NULL
    GROUP BY g.topic_key
    OPTION (KEEPFIXED PLAN);
{%- endmacro %}

{#- Ids of what the caller has taken, as a JSON array; null if there are none. -#}
{% macro array(table="@gone", where="") -%}
    (SELECT {{ arguments.array_of("g.id") }} FROM {{ table }} AS g{{ " WHERE " ~ where if where }})
{%- endmacro %}

{#- The groups of what the caller has taken, as a JSON array of objects; null if there are none. -#}
{% macro groups() -%}
    (SELECT DISTINCT g.group_key FROM @gone AS g WHERE g.group_key IS NOT NULL FOR JSON PATH)
{%- endmacro %}

{#- The lease of any group, looked for without a lock: an owner's own are there to see. -#}
{% macro any_group_is_held() -%}
    EXISTS (
        SELECT 1
        FROM {{ box.lease }} AS l WITH (READUNCOMMITTED, FORCESEEK)
        WHERE l.group_key > N'' AND l.group_key IS NOT NULL
    )
{%- endmacro %}

{#-
Abandon and retry. `tries` is what they declare; `try_again` counts an attempt of each message that the caller has just
taken into @gone (id, group_key), records @last_error, and puts it back under @delay_seconds or the backoff; those whose
attempts reach @limit_attempts, unless it is 0, are dead, and @dead says how many. A null limit is the box's setting.
-#}
{% macro tries() -%}
    DECLARE @now_at datetime2(6);
    DECLARE @base float;
    DECLARE @cap float;
    DECLARE @affected int;
    DECLARE @dead int = 0;
    DECLARE @kept_error nvarchar(max) = {{ texts.cut("@last_error") | indent(4) }};
    DECLARE @moved nvarchar(max);
    DECLARE @groups nvarchar(max);
    DECLARE @wanted TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @gone TABLE (
        id bigint NOT NULL PRIMARY KEY,
        group_key nvarchar(256) COLLATE Latin1_General_100_BIN2
    );
    DECLARE @tried TABLE (
        id bigint NOT NULL PRIMARY KEY,
        attempt int NOT NULL,
        wait_seconds float NOT NULL,
        is_dying bit NOT NULL
    );
{%- endmacro %}

{#- Whether message m has been tried often enough by the next attempt. -#}
{% macro is_dying(limit="@limit_attempts") -%}
    CASE WHEN {{ limit }} > 0 AND m.attempt + 1 >= {{ limit }} THEN 1 ELSE 0 END
{%- endmacro %}

{% macro try_again() -%}
    {{ times.read_backoff() }}

    INSERT INTO @tried (id, attempt, wait_seconds, is_dying)
    SELECT
        m.id,
        m.attempt + 1,
        {{ times.backoff("@delay_seconds") | indent(8) }},
        {{ is_dying() }}
    FROM @gone AS g
    INNER JOIN {{ box.message }} AS m WITH (FORCESEEK) ON m.id = g.id
    OPTION (KEEPFIXED PLAN);

    SET @now_at = {{ clock.now() }};
    UPDATE m
    SET
        attempt = t.attempt,
        due_at = CASE WHEN t.is_dying = 1 THEN m.due_at ELSE {{ times.after("@now_at", "t.wait_seconds") | indent(8) }} END,
        last_error = CASE WHEN LEN(@last_error + N'.') > 1 THEN @kept_error ELSE m.last_error END
    FROM @tried AS t
    INNER JOIN {{ box.message }} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = t.id
    OPTION (KEEPFIXED PLAN);

    SET @moved = {{ array("@tried", "g.is_dying = 1") }};
    IF @moved IS NOT NULL
    BEGIN
        SET @dead = (SELECT COUNT(*) FROM @tried AS t WHERE t.is_dying = 1);
        EXEC {{ box._bury }} @ids = @moved, @error = NULL, @expired = 0;
    END;

    SET @moved = {{ array("@tried", "g.is_dying = 0") }};
    IF @moved IS NOT NULL
        EXEC {{ box._put_back }} @ids = @moved;

    -- Putting members back gave their groups a ticket already.
    SET @groups = (
        SELECT g.group_key
        FROM @gone AS g
        INNER JOIN @tried AS t ON t.id = g.id
        WHERE g.group_key IS NOT NULL
        GROUP BY g.group_key
        HAVING MIN(CONVERT(int, t.is_dying)) = 1
        FOR JSON PATH
    );
    IF @groups IS NOT NULL
        EXEC {{ box._regroup }} @groups = @groups;
{%- endmacro %}
