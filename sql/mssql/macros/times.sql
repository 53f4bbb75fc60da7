{#- Times as expressions: seconds may be fractional, and are more than DATEADD takes as one number. -#}

{% macro after(at, seconds) -%}
DATEADD(
    MICROSECOND, CONVERT(int, ({{ seconds }} - FLOOR({{ seconds }})) * 1000000),
    DATEADD(SECOND, CONVERT(int, FLOOR({{ seconds }})), {{ at }})
)
{%- endmacro %}

{% macro before(at, seconds) -%}
DATEADD(
    MICROSECOND, -CONVERT(int, ({{ seconds }} - FLOOR({{ seconds }})) * 1000000),
    DATEADD(SECOND, -CONVERT(int, FLOOR({{ seconds }})), {{ at }})
)
{%- endmacro %}

{#- The box's backoff, into @base and @cap, and how often it tries, into @limit_attempts unless the caller says. -#}
{% macro read_backoff() -%}
    SELECT
        @base = MAX(CASE WHEN s.name = N'backoff_base_seconds' THEN CONVERT(float, s.value) END),
        @cap = MAX(CASE WHEN s.name = N'backoff_cap_seconds' THEN CONVERT(float, s.value) END),
        @limit_attempts = ISNULL(
            @limit_attempts, MAX(CASE WHEN s.name = N'max_attempts' THEN CONVERT(int, s.value) END)
        )
    FROM {{ box.settings }} AS s
    WHERE s.name IN (N'backoff_base_seconds', N'backoff_cap_seconds', N'max_attempts');
{%- endmacro %}

{#- How long the next try of message m waits, unless the caller says. -#}
{% macro backoff(delay) -%}
CASE
    WHEN {{ delay }} IS NOT NULL THEN {{ delay }}
    WHEN m.attempt >= 64 OR @base * POWER(CONVERT(float, 2), m.attempt + 1) > @cap THEN @cap
    ELSE @base * POWER(CONVERT(float, 2), m.attempt + 1)
END
{%- endmacro %}
