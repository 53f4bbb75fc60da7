{#-
The server's clock at the time of the call, as an expression. A scalar function that reads the clock is never
inlined, so it is only called where tests move the clock.
-#}
{% macro now() -%}
{% if test_clock %}{{ db._now }}(){% else %}CONVERT(datetime2(6), SYSUTCDATETIME()){% endif %}
{%- endmacro %}
