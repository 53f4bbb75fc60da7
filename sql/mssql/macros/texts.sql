{#-
An error or a reason as it is kept: at most 16384 characters, of which the mark that something was cut off is a part.
So one message's error cannot make a claim or a page of dead letters heavy.

LEN passes over trailing blanks, so an end mark is put behind the text. Under the binary collation a character is a
UTF-16 unit; of a pair of them (from 55296 to 56319 is a first half) none is kept without the other.
-#}
{% macro cut(text) -%}
CASE
    WHEN LEN(({{ text }} + N'.') COLLATE Latin1_General_100_BIN2) > 16385
        THEN SUBSTRING(
            {{ text }} COLLATE Latin1_General_100_BIN2, 1,
            16374 - CASE
                WHEN UNICODE(SUBSTRING({{ text }} COLLATE Latin1_General_100_BIN2, 16374, 1)) BETWEEN 55296 AND 56319 THEN 1
                ELSE 0
            END
        ) + N' ... [cut]'
    ELSE {{ text }}
END
{%- endmacro %}
