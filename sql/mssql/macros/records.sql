{% import "macros/locks.sql" as locks with context %}
{% import "macros/times.sql" as times with context %}
{#- What the producers' batches and single calls have in common. -#}

{#-
One id a row of @raw, in the order of its ordinals, into @numbered. A sequence cannot be asked for values in a certain
order in both engines: so they are drawn first and then ranked, into a table with a key that can be joined.
-#}
{% macro number_tables() -%}
    DECLARE @drawn TABLE (id bigint NOT NULL PRIMARY KEY);
    DECLARE @numbered TABLE (ordinal int NOT NULL PRIMARY KEY, id bigint NOT NULL);
{%- endmacro %}

{% macro number_raw() -%}
    INSERT INTO @drawn (id)
    SELECT NEXT VALUE FOR {{ box._ids }}
    FROM @raw;
    INSERT INTO @numbered (ordinal, id)
    SELECT ROW_NUMBER() OVER (ORDER BY d.id), d.id
    FROM @drawn AS d;
{%- endmacro %}

{#- The object of a record, or an empty one. -#}
{% macro record() -%}
    CASE WHEN j.type = 5 THEN j.value ELSE N'{}' END
{%- endmacro %}

{#- A time of a record, which was checked, as an expression in UTC. -#}
{% macro time(text) -%}
    CONVERT(datetime2(6), SWITCHOFFSET(TRY_CONVERT(datetimeoffset, {{ text }}), '+00:00'))
{%- endmacro %}

{#- When record r, which was checked, is due. Its seconds may be written with an exponent, which only float reads. -#}
{% macro due() -%}
    CASE
        WHEN r.delay_seconds IS NULL THEN {{ time("r.due_at") }}
        WHEN TRY_CONVERT(float, r.delay_seconds) > 0
            THEN {{ times.after("@now_at", "CONVERT(decimal(19, 3), TRY_CONVERT(float, r.delay_seconds))") | indent(12) }}
    END
{%- endmacro %}

{#- True if a text of a record cannot be read as that type. An empty one converts to 1900 and to 0. -#}
{% macro is_no(type, text) -%}
    ({{ text }} = N'' OR ({{ text }} IS NOT NULL AND TRY_CONVERT({{ type }}, {{ text }}) IS NULL))
{%- endmacro %}

{#-
Locks the keys whose numbers (locks.number) are in @key, which it empties, in the order of the numbers, as every batch
does. Needs locks.variables and key_tables.
-#}
{% macro key_tables() -%}
    DECLARE @key TABLE (number bigint NOT NULL PRIMARY KEY);
    DECLARE @key_number bigint;
{%- endmacro %}

{% macro lock_keys(word) -%}
    SET @key_number = (SELECT MIN(k.number) FROM @key AS k);
    WHILE @key_number IS NOT NULL
    BEGIN
        SET @lock_number = @key_number;
        {{ locks.wait_numbered(word) | indent(4) }}
        SET @key_number = (SELECT MIN(k.number) FROM @key AS k WHERE k.number > @key_number);
    END;
    DELETE FROM @key;
{%- endmacro %}

{#-
What an enqueue answers with follows. Not in a trigger: a result set of its own would go to whoever wrote the row, who
did not ask for one.
-#}
{% macro answer() -%}
    IF TRIGGER_NESTLEVEL() = 0
{%- endmacro %}
