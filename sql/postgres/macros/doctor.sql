{#
  What the parts of doctor() have in common.

      {% call doctor.look("standby", "'server'", "it takes writes") %}
      SELECT level, subject, detail, advice FROM …          -- a row for each thing that is found
      {% endcall %}

  A check that finds nothing answers that it is fine; one that cannot look, for want of a right or of something that this
  server does not have, answers that it does not know, and the others go on.
#}
{% macro result() %}
RETURNS TABLE ("check" text, level text, subject text, detail text, advice text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET lock_timeout = '100ms'
SET jit = off
{%- endmacro %}
{# What a check may meet that only says that it cannot look. #}
{% macro blind() %}
insufficient_privilege OR undefined_table OR undefined_column OR undefined_function OR undefined_object
            OR invalid_schema_name OR object_not_in_prerequisite_state OR feature_not_supported OR lock_not_available
            OR data_exception
{%- endmacro %}
{# check: its name; subject: an expression; fine: a text, what is so if nothing is found #}
{% macro look(check, subject, fine) %}
BEGIN
        RETURN QUERY
        SELECT {{ check | literal }}, f.level, f.subject, f.detail, f.advice
        FROM (
            {{ caller() | trim }}
        ) AS f (level, subject, detail, advice);
        IF NOT FOUND THEN
            RETURN QUERY SELECT {{ check | literal }}, 'ok', {{ subject }}, {{ fine | literal }}, NULL::text;
        END IF;
    EXCEPTION
        WHEN {{ blind() }} THEN
            RETURN QUERY
            SELECT
                {{ check | literal }}, 'unknown', {{ subject }}, 'it could not be looked at: ' || SQLERRM,
                'Call it as the owner of the schema, or as a superuser.';
    END
{%- endmacro %}
{# The rows of a part, which is a call; if it cannot be had, that is a row. #}
{% macro part(call, subject) %}
BEGIN
        RETURN QUERY {{ call }};
    EXCEPTION
        WHEN {{ blind() }} THEN
            RETURN QUERY
            SELECT
                'doctor', 'unknown', {{ subject }}, 'it could not be looked at: ' || SQLERRM,
                'Call it as the owner of the schema, or as a superuser.';
    END
{%- endmacro %}
{# A length of time without its fractions. #}
{% macro lasting(interval) %}
date_trunc('second', {{ interval }})::text
{%- endmacro %}
{# A number with what it counts: one, or more; texts. #}
{% macro counted(number, one, more) %}
{{ number }} || CASE WHEN {{ number }} = 1 THEN {{ (" " ~ one) | literal }} ELSE {{ (" " ~ more) | literal }} END
{%- endmacro %}
{# A row more if the sessions of other roles are hidden from whom this runs as. #}
{% macro hidden() %}
UNION ALL
            SELECT
                'unknown', 'role ' || current_user, 'what sessions of other roles do is hidden from it',
                format('GRANT pg_read_all_stats TO %I;', current_user)
            WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE')
{%- endmacro %}
{# An index by its name and what makes it anew: a row of VALUES. #}
{% macro constraint(table, name, definition) %}
({{ ((schema | ident) ~ "." ~ name) | literal }}, {{ ("ALTER TABLE " ~ table ~ " ADD CONSTRAINT " ~ name ~ " " ~ definition ~ ";") | literal }})
{%- endmacro %}
{% macro index(table, name, definition, unique="") %}
({{ ((schema | ident) ~ "." ~ name) | literal }}, {{ ("CREATE " ~ unique ~ "INDEX CONCURRENTLY " ~ name ~ " ON " ~ table ~ " " ~ definition ~ ";") | literal }})
{%- endmacro %}
{# The rows of VALUES that are not there. #}
{% macro missing_of() %}
SELECT 'error', 'index ' || (parse_ident(x.name))[2], 'it is missing: what it served reads whole tables, or no key is unique', x.statement
            FROM (
                VALUES
                {{ caller() | trim }}
            ) AS x (name, statement)
            WHERE NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indexrelid = to_regclass(x.name))
{%- endmacro %}
