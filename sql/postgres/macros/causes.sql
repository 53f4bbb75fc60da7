{#
  How an error becomes a cause: the first line, in which everything that differs from case to case is replaced. Its steps,
  which T-SQL's macros of the same names take too, to the same text:

  1. normal: the first 1000 characters up to the end of the line; digits and # become 0, backslashes slashes, control
     characters blanks.
  2. unquoted: what stands between quotes becomes ?. An apostrophe within a word is no quote.
  3. located: a URL becomes <address>.
  4. folded, word by word: one with an @ in it is an <address>; one that begins like a path, or has two slashes, a
     <path>; a number, hex with a digit, a uuid, a date or eight letters of hex, and a long word with digits in two
     places, is #; any other's digits are #. Not more than 200 characters of it are kept.
#}
{% macro normal(error) %}
btrim(regexp_replace(
                translate(split_part(split_part(left({{ error }}, 1000), chr(10), 1), chr(13), 1), '#123456789\', '0000000000/'),
                '[\x01-\x1f\ue000]', ' ', 'g'
            ))
{%- endmacro %}

{% set mark = "(?:(?<![A-Za-z0-9])''|''(?![A-Za-z]))" %}
{% macro unquoted(text) %}
regexp_replace(
                    regexp_replace({{ text }}, '"[^"]*"', '?', 'g'),
                    {{ "'" ~ mark ~ "(?:[^'']|(?<=[A-Za-z0-9])''(?=[A-Za-z]))*" ~ mark ~ "'" }}, '?', 'g'
                )
{%- endmacro %}

{% macro located(text) %}
regexp_replace({{ text }}, '[A-Za-z0-9+.-]*://[^] <>"'',;()[{}|]*', '<address>', 'g')
{%- endmacro %}

{# The delimiters as words of their own, each word behind a character that nothing else has. Any quote left is a '. #}
{% macro words(text) %}
{% set ns = namespace(text="replace(replace(replace(" ~ text ~ ", '\"', '''') || ' ', ': ', chr(57344) || ': '), '. ', chr(57344) || '. ')") %}
{% for each in " <>',;()[]{}|=?*&!`" %}
{% set ns.text = "replace(" ~ ns.text ~ ", '" ~ each.replace("'", "''") ~ "', chr(57344) || '" ~ each.replace("'", "''") ~ "' || chr(57344))" %}
{% endfor %}
string_to_table({{ ns.text }}, chr(57344)) WITH ORDINALITY
{%- endmacro %}

{% macro folded(text) %}
(
                SELECT left(btrim(string_agg(
                    CASE
                        WHEN strpos(w.word, '@') > 1 AND strpos(w.word, '@') < length(w.word) THEN '<address>'
                        WHEN length(w.word) > 1 AND (
                            left(w.word, 1) = '/' OR left(w.word, 2) IN ('./', '~/') OR substr(w.word, 2, 2) = ':/'
                            OR length(w.word) - length(replace(w.word, '/', '')) > 1
                        ) THEN '<path>'
                        WHEN strpos(w.word, '0') > 0
                            AND translate(
                                CASE WHEN left(w.word, 2) IN ('0x', '0X') THEN substr(w.word, 3) ELSE w.word END,
                                '0abcdefABCDEF:.-', ''
                            ) = '' THEN '#'
                        WHEN length(w.word) >= 8 AND translate(w.word, 'abcdefABCDEF', '') = '' THEN '#'
                        WHEN length(w.word) >= 16 AND w.word ~ '0[^0]+0' THEN '#'
                        ELSE regexp_replace(w.word, '0+', '#', 'g')
                    END,
                    '' ORDER BY w.place
                )), 200)
                FROM {{ words(text) }} AS w (word, place)
            )
{%- endmacro %}
