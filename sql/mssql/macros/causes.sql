{#-
How an error becomes a cause: the first line, in which everything that differs from case to case is replaced. Its steps,
which PostgreSQL's macros of the same names take too, to the same text:

1. normal: the first 1000 characters up to the end of the line; digits and # become 0, backslashes slashes, control
   characters blanks.
2. unquoted: what stands between quotes becomes ?. An apostrophe within a word is no quote.
3. located: a URL becomes <address>.
4. folded, word by word: one with an @ in it is an <address>; one that begins like a path, or has two slashes, a
   <path>; a number, hex with a digit, a uuid, a date or eight letters of hex, and a long word with digits in two
   places, is #; any other's digits are #. Not more than 200 characters of it are kept.

There are no regular expressions: 2 and 3 are taken by all lines at once, one quoted text or URL of each at a time, so
as often as the line with the most of them has; 4 by all words at once. Texts are binary throughout.
-#}

{#- Half a character is none: the second half of a pair was cut off. -#}
{% macro cut(text, length) -%}
    LEFT({{ text }}, {{ length }} - CASE
        WHEN UNICODE(SUBSTRING({{ text }}, {{ length }}, 1)) BETWEEN 55296 AND 56319 THEN 1
        ELSE 0
    END)
{%- endmacro %}

{#- The line of an error, as an expression. -#}
{% macro normal(error) -%}
    LTRIM(RTRIM(TRANSLATE(
        LEFT(
            LEFT({{ error }} COLLATE Latin1_General_100_BIN2, 1000),
            CHARINDEX(NCHAR(10), REPLACE(
                LEFT({{ error }} COLLATE Latin1_General_100_BIN2, 1000), NCHAR(13), NCHAR(10)
            ) + NCHAR(10)) - 1
        ),
        N'#123456789\'
        {%- for code in range(1, 32) %} + NCHAR({{ code }}){% endfor %} + NCHAR(57344),
        N'0000000000/{{ " " * 32 }}'
    )))
{%- endmacro %}

{#- The lines of @line (no, line), from_at and to_at being for this. -#}
{% macro unquote() -%}
    SET @changed = 1;
    WHILE @changed > 0
    BEGIN
        UPDATE @line
        SET line = STUFF(
            line, CHARINDEX(N'"', line),
            CHARINDEX(N'"', line, CHARINDEX(N'"', line) + 1) - CHARINDEX(N'"', line) + 1, N'?'
        )
        WHERE CHARINDEX(N'"', line) > 0 AND CHARINDEX(N'"', line, CHARINDEX(N'"', line) + 1) > 0;
        SET @changed = @@ROWCOUNT;
    END;

    -- A quote begins or ends a quoted text unless a letter or a digit is before it and a letter behind it.
    SET @changed = 1;
    WHILE @changed > 0
    BEGIN
        UPDATE @line
        SET from_at = {{ first_mark("N' ' + line", "line + N' '") }}
        WHERE CHARINDEX(N'''', line) > 0;
        UPDATE @line
        SET to_at = from_at + {{ first_mark("SUBSTRING(line, from_at, 1001)", "SUBSTRING(line + N' ', from_at + 1, 1001)") }}
        WHERE from_at > 0;
        UPDATE @line
        SET line = STUFF(line, from_at, to_at - from_at + 1, N'?')
        WHERE from_at > 0 AND to_at > from_at;
        SET @changed = @@ROWCOUNT;
        UPDATE @line SET from_at = 0, to_at = 0 WHERE from_at > 0;
    END;
{%- endmacro %}

{#- Where the first quote is that is one, 0 if there is none: by what is before it, or by what is behind it. -#}
{% macro first_mark(before, behind) -%}
    CASE
        WHEN PATINDEX(N'%[^A-Za-z0-9]''%', {{ before }}) > 0 AND (
            PATINDEX(N'%''[^A-Za-z]%', {{ behind }}) = 0
            OR PATINDEX(N'%[^A-Za-z0-9]''%', {{ before }}) < PATINDEX(N'%''[^A-Za-z]%', {{ behind }})
        ) THEN PATINDEX(N'%[^A-Za-z0-9]''%', {{ before }})
        ELSE PATINDEX(N'%''[^A-Za-z]%', {{ behind }})
    END
{%- endmacro %}

{#- From the beginning of the word before :// up to the first character that ends a URL. -#}
{% macro locate() -%}
    SET @changed = 1;
    WHILE @changed > 0
    BEGIN
        UPDATE @line
        SET
            from_at = CHARINDEX(N'://', line) + 1
                - PATINDEX(N'%[^A-Za-z0-9+.-]%', REVERSE(LEFT(line, CHARINDEX(N'://', line) - 1)) + N' '),
            to_at = CHARINDEX(
                N' ', TRANSLATE(line, N'<>"'',;()[]{}|', N'{{ " " * 13 }}') + N' ', CHARINDEX(N'://', line)
            )
        WHERE CHARINDEX(N'://', line) > 0;
        SET @changed = @@ROWCOUNT;
        UPDATE @line
        SET line = STUFF(line, from_at, to_at - from_at, N'<address>'), from_at = 0, to_at = 0
        WHERE from_at > 0;
    END;
{%- endmacro %}

{#- The words of a line as a JSON array, in their order: delimiters are words of their own. Nothing in it needs escaping. -#}
{% macro words(line) -%}
{% set ns = namespace(text="REPLACE(REPLACE(REPLACE(" ~ line ~ ", N'\"', N'''') + N' ', N': ', NCHAR(57344) + N': '), N'. ', NCHAR(57344) + N'. ')") -%}
{% for each in " <>',;()[]{}|=?*&!`" -%}
{% set quoted = "N'" ~ each.replace("'", "''") ~ "'" -%}
{% set ns.text = "REPLACE(" ~ ns.text ~ ", " ~ quoted ~ ", NCHAR(57344) + " ~ quoted ~ " + NCHAR(57344))" -%}
{% endfor -%}
    N'["' + REPLACE({{ ns.text }}, NCHAR(57344), N'","') + N'"]'
{%- endmacro %}

{#- What becomes of a word w.word, whose runs of digits are # in w.short. -#}
{% macro folded() -%}
    CASE
        WHEN CHARINDEX(N'@', w.word) > 1 AND CHARINDEX(N'@', w.word) < LEN(w.word) THEN N'<address>'
        WHEN LEN(w.word) > 1 AND (
            LEFT(w.word, 1) = N'/' OR LEFT(w.word, 2) IN (N'./', N'~/') OR SUBSTRING(w.word, 2, 2) = N':/'
            OR LEN(w.word) - LEN(REPLACE(w.word, N'/', N'')) > 1
        ) THEN N'<path>'
        WHEN CHARINDEX(N'0', w.word) > 0
            AND REPLACE(TRANSLATE(
                CASE WHEN LEFT(w.word, 2) IN (N'0x', N'0X') THEN SUBSTRING(w.word, 3, 1000) ELSE w.word END,
                N'abcdefABCDEF:.-', N'000000000000000'
            ), N'0', N'') = N'' THEN N'#'
        WHEN LEN(w.word) >= 8 AND CHARINDEX(N'0', w.word) = 0
            AND REPLACE(TRANSLATE(w.word, N'abcdefABCDEF', N'000000000000'), N'0', N'') = N'' THEN N'#'
        WHEN LEN(w.word) >= 16 AND LEN(w.short) - LEN(REPLACE(w.short, N'#', N'')) > 1 THEN N'#'
        ELSE w.short
    END
{%- endmacro %}

{#- What stands in for an error that there is none of: the status of a row of dead. -#}
{% macro status(dead) -%}
    CASE
        WHEN {{ dead }}.expired = 1 THEN N'Expired'
        WHEN {{ dead }}.cancelled = 1 THEN N'Cancelled'
        ELSE N'{{ "Dead" if kind == "inbox" else "Failed" }}'
    END
{%- endmacro %}

{#- The causes of the lines of @line, into @cause (no, cause). -#}
{% macro fold() -%}
    INSERT INTO @cause (no, cause)
    SELECT f.no, {{ cut("f.cause", 200) | indent(4) }}
    FROM (
        SELECT
            w.no,
            LTRIM(RTRIM(STRING_AGG(
                CONVERT(nvarchar(max), {{ folded() | indent(16) }}), N''
            ) WITHIN GROUP (ORDER BY w.place))) COLLATE Latin1_General_100_BIN2 AS cause
        FROM (
            SELECT
                l.no, CONVERT(int, j.[key]) AS place, j.value COLLATE Latin1_General_100_BIN2 AS word,
                REPLACE(REPLACE(REPLACE(
                    j.value COLLATE Latin1_General_100_BIN2, N'0', N'<>'), N'><', N''), N'<>', N'#'
                ) AS short
            FROM @line AS l
            CROSS APPLY OPENJSON({{ words("l.line") | indent(8) }}) AS j
        ) AS w
        GROUP BY w.no
    ) AS f;
{%- endmacro %}
