{#-
What a table of the hot path is set to. Its rows come and go in thousands, so that locks on them must not become one on
all; and they are inserted at one end, so that many sessions want the same page: a server that knows the option (2019
and later, and Azure's) lets them in by turns. Babelfish knows no ALTER INDEX, so that this is told to the server as text.
-#}
{% macro hot(table, primary_key) -%}
ALTER TABLE {{ table }} SET (LOCK_ESCALATION = DISABLE);
IF SERVERPROPERTY('Babelfish') IS NULL
    AND (CONVERT(int, SERVERPROPERTY('ProductMajorVersion')) >= 15 OR SERVERPROPERTY('EngineEdition') IN (5, 8))
    EXEC ({{ ("ALTER INDEX " ~ primary_key ~ " ON " ~ table ~ " SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON);") | literal }});
{%- endmacro %}
