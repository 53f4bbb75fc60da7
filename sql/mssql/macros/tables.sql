{#-
For an index that grows at its end: many writers at once want its last page, and the server lines them up better if it
knows. From SQL Server 2019 on, and in Azure; not in Babelfish. Dynamic, for a parser of an older one rejects the word.
-#}
{% macro grows_at_its_end(index, table) -%}
IF SERVERPROPERTY('Babelfish') IS NULL
    AND (CONVERT(int, SERVERPROPERTY('ProductMajorVersion')) >= 15 OR SERVERPROPERTY('EngineEdition') IN (5, 8))
    EXEC sys.sp_executesql
        {{ ("ALTER INDEX " ~ index ~ " ON " ~ table ~ " SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON);") | literal }};
{%- endmacro %}
