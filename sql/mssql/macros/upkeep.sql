{% import "macros/clock.sql" as clock with context %}
{% import "macros/locks.sql" as locks with context %}
{#-
That upkeep was done, for doctor and metrics; within its transaction, with locks.variables() declared. Whoever comes while
another transaction has noted it leaves it at that, and waits for nobody.
-#}
{% macro note(what) -%}
    {{ locks.attempt((schema ~ "." ~ box_name ~ ":upkeep:" ~ what) | literal) }}
    IF @lock_got >= 0
        UPDATE {{ box._upkeep }} WITH (ROWLOCK)
        SET done_at = {{ clock.now() }}
        WHERE what = {{ what | literal }};
{%- endmacro %}

{#- When it was done last, or null. -#}
{% macro last(what) -%}
    (SELECT u.done_at FROM {{ box._upkeep }} AS u WHERE u.what = {{ what | literal }})
{%- endmacro %}
