{#-
What routines that end or move an owner's leases have in common.

    {{ settling.check() }}                        -- of @owner_token and @ids
    {{ settling.wanted() }}                       -- @wanted, the ids, each once; declared by the caller

    BEGIN TRANSACTION;
    EXEC {{ box._lock_groups }} …
    {{ settling.take("deleted.id", "id") }}       -- into @gone; what it answers is what the caller has
-#}
{% import "macros/arguments.sql" as arguments with context %}

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
