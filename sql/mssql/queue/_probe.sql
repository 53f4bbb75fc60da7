{# Babelfish hands out the text of JSON strings with their escapes still in it. -#}
{%- macro plain(text) -%}
CASE WHEN SERVERPROPERTY('Babelfish') IS NULL THEN {{ text }} ELSE REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(
            REPLACE(REPLACE({{ text }} COLLATE Latin1_General_100_BIN2, N'\\', NCHAR(1)), N'\"', N'"'), N'\n', NCHAR(10)),
            N'\r', NCHAR(13)), N'\t', NCHAR(9)), N'\b', NCHAR(8)), N'\f', NCHAR(12)), NCHAR(1), N'\') END
{%- endmacro -%}
-- Has somebody look at these groups again a little later: what the caller can see now does not settle whether
-- they need a ticket.
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ box._probe }}
    @groups nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;

    DECLARE @look_at datetime2(6) = DATEADD(MILLISECOND, 200, {{ db._now }}());

    INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic_key, group_key)
    SELECT @look_at, NEXT VALUE FOR {{ box._ids }}, 0, N'.', {{ plain('g.group_key') }}
    FROM OPENJSON(@groups) WITH (group_key nvarchar(max) '$.group_key') AS g;
END;
