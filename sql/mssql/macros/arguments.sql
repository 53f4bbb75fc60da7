{#-
How a procedure begins, and how it turns a call away.

    BEGIN
        {{ arguments.begin() }}

        DECLARE …
        IF @join_id IS NULL
        {{ arguments.reject("join_id", "must not be null") }}
        {{ arguments.check_by(db._ledger_check ~ " @key = @key") }}

        BEGIN TRANSACTION;
        {{ locks.wait(…) }}
        SELECT …
        IF @status IS NULL                     -- found out under locks, before the first write
        {{ arguments.refuse(51002, "join_id: no such join; it must be what join_start answered, in this schema") }}
        …
        COMMIT TRANSACTION;

Why: an error that is raised while XACT_ABORT is on dooms the caller's transaction, and a caller that catches it and goes
on commits the second half alone. So whatever turns a call away is raised while it is off, and before anything is
written; `begin` turns it on for all else, so that a client's timeout or an error that nobody thought of ends the
transaction as a whole and nothing runs on behind it. Without a transaction of the caller's it stays on: there is nothing
to keep, and on Babelfish something to clean up (a TRY_CONVERT that fails within an INSERT leaves a transaction open there,
in which the connection's next calls would be lost). Routines that only check (_reject, _check_…, _explain) leave the
setting as they find it, for they are called by `reject` and `check_by`. SQL Server puts it back when a procedure
returns, and the isolation level too.

The isolation level is the procedure's own: READPAST fails under SERIALIZABLE and SNAPSHOT, and what is decided under
a lock must be read as it is then. Babelfish knows one level and refuses to change over within a transaction.

So is how many rows a statement may move: under a caller's SET ROWCOUNT half of a batch would be written, with a sign of
success. It is the caller's again when the procedure returns.

Lines behind the first are indented by four; deeper down use `| indent(4)`.
-#}

{% macro begin() -%}
    SET NOCOUNT, XACT_ABORT ON;
    SET ROWCOUNT 0;
    IF SERVERPROPERTY('Babelfish') IS NULL
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @callers_depth int = @@TRANCOUNT;
{%- endmacro %}

{#- The branch of an IF: an invalid argument, before the procedure's own transaction. -#}
{% macro reject(argument, rule) -%}
    BEGIN
        IF @callers_depth > 0
            SET XACT_ABORT OFF;
        EXEC {{ db._reject }} @argument = {{ argument | literal }}, @rule = {{ rule | literal }};
    END;
{%- endmacro %}

{#- The branch of an IF, or a statement: calls a routine that returns only if nothing is wrong. -#}
{% macro check_by(call) -%}
    BEGIN
        IF @callers_depth > 0
            SET XACT_ABORT OFF;
        EXEC {{ call }};
        SET XACT_ABORT ON;
    END;
{%- endmacro %}

{#- The branch of an IF: any other error before the procedure's own transaction. The message is a text, or a variable. -#}
{% macro raise(number, message) -%}
    BEGIN
        IF @callers_depth > 0
            SET XACT_ABORT OFF;
        THROW {{ number }}, {{ message if message.startswith("@") else message | literal }}, 1;
    END;
{%- endmacro %}

{#-
The branch of an IF: the same within the procedure's own transaction, before it has written anything. That ends first,
so that the caller's is as deep as it was. An internal procedure, which began none, answers its caller instead.
-#}
{% macro refuse(number, message) -%}
    BEGIN
        COMMIT TRANSACTION;
        IF @callers_depth > 0
            SET XACT_ABORT OFF;
        THROW {{ number }}, {{ message if message.startswith("@") else message | literal }}, 1;
    END;
{%- endmacro %}

{#- Conditions, true if a text is not what it should be; null makes them unknown. -#}

{#- Not a JSON array. A JSON text begins with one of these two, whatever blanks are before it. -#}
{% macro not_array(json) -%}
    (ISJSON({{ json }}) = 0 OR CHARINDEX(N'[', {{ json }} + N'[') > CHARINDEX(N'{', {{ json }} + N'{'))
{%- endmacro %}

{#- Not a JSON array of whole numbers and nulls. Never reads a text as JSON that is not, in whatever order it runs. -#}
{% macro not_ids(json) -%}
    (
            {{ not_array(json) }}
            OR EXISTS (
                SELECT 1
                FROM OPENJSON(CASE WHEN ISJSON({{ json }}) = 1 THEN {{ json }} ELSE N'[]' END) AS j
                WHERE j.type <> 0 AND (TRY_CONVERT(bigint, j.value) IS NULL OR j.value = N'')
            )
        )
{%- endmacro %}

{#- The ids of such an array, each once: the body of an INSERT. -#}
{% macro ids_of(json) -%}
    SELECT DISTINCT CONVERT(bigint, j.value)
    FROM OPENJSON({{ json }}) AS j
    WHERE j.value IS NOT NULL
{%- endmacro %}

{#- Ids as such an array; null if there are none. What follows the expression is the caller's FROM. -#}
{% macro array_of(id) -%}
    N'[' + STRING_AGG(CONVERT(nvarchar(max), {{ id }}), N',') + N']'
{%- endmacro %}
