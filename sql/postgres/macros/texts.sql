{#
  An error or a reason as it is kept: at most 16384 characters, of which the mark that something was cut off is a part.
  So one message's error cannot make a claim or a page of dead letters heavy.
#}
{% macro cut(text) %}
CASE WHEN length({{ text }}) > 16384 THEN left({{ text }}, 16374) || ' ... [cut]' ELSE {{ text }} END
{%- endmacro %}
