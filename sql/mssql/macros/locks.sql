{#-
Application locks: exclusive, on a name, held until the transaction ends. A name becomes a number of 64 bits, so that
different names do not meet, and nobody waits for a stranger.

    {{ locks.variables() }}                                 -- once, with the DECLAREs

    BEGIN TRANSACTION;
    {{ locks.wait(locks.join("@join_id"), "join") }}        -- waits; raises 50001 if that cannot be
    {{ locks.attempt(locks.group("@group_key")) }}          -- never waits
    IF @lock_got >= 0 …                                     -- then it is ours

What is read behind `wait` is read by a new statement and so as the last holder left it; read rows that decide with
READCOMMITTEDLOCK nevertheless, for those who change them without the lock.
Take several in the order of their numbers or names, whichever all callers use: groups by name, keys by number
(`number` is what to sort by, `wait_numbered` locks one).

On Babelfish they are PostgreSQL's advisory locks, for a failed sp_getapplock leaves an error behind there, and the
fifth brings the server down.
-#}

{#- Names. -#}
{% macro join(join_id) -%}
    CONCAT({{ (schema ~ ".join:") | literal }}, {{ join_id }})
{%- endmacro %}

{% macro group(group_key, of=none) -%}
    CONCAT({{ (schema ~ "." ~ (of or box_name) ~ "::") | literal }}, {{ group_key }})
{%- endmacro %}

{#- A key of a box: its kind (dedup, message_id) tells keys of the same text apart. -#}
{% macro key(kind_of_key, key) -%}
    CONCAT({{ (schema ~ "." ~ box_name ~ ":") | literal }}, {{ (kind_of_key ~ ":") | literal }}, {{ key }})
{%- endmacro %}

{#- Of an inbox: both in key form; the length tells where the first ends. -#}
{% macro message_key(source_key, message_id_key) -%}
    CONCAT({{ (schema ~ "." ~ box_name ~ ":message:") | literal }}, LEN({{ source_key }}), {{ source_key }}, {{ message_id_key }})
{%- endmacro %}

{% macro ledger_key(key) -%}
    CONCAT({{ (schema ~ ".ledger:") | literal }}, {{ key }})
{%- endmacro %}

{#- The number of a name, as an expression. -#}
{% macro number(name) -%}
    CONVERT(bigint, CONVERT(binary(8), HASHBYTES('SHA2_256', {{ name }})))
{%- endmacro %}

{% macro variables() -%}
    DECLARE @lock_number bigint;
    DECLARE @lock_name nvarchar(255);
    DECLARE @lock_got int;
{%- endmacro %}

{#- word: what the error calls it -#}
{% macro wait(name, word) -%}
    SET @lock_number = {{ number(name) }};
    {{ wait_numbered(word) }}
{%- endmacro %}

{#- Locks @lock_number. -#}
{% macro wait_numbered(word) -%}
    SET @lock_name = CONVERT(nvarchar(255), @lock_number);
    IF SERVERPROPERTY('Babelfish') IS NULL
        EXEC @lock_got = sys.sp_getapplock @Resource = @lock_name, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
    ELSE
        EXEC sys.sp_executesql
            N'SELECT @got = COUNT(*) FROM (SELECT pg_catalog.pg_advisory_xact_lock(@number) AS taken) AS l;',
            N'@number bigint, @got int OUTPUT', @number = @lock_number, @got = @lock_got OUTPUT;
    IF @lock_got < 0
        THROW 50001, {{ (word ~ ": its lock was not to be had, try again") | literal }}, 1;
{%- endmacro %}

{#- Afterwards @lock_got is negative if somebody else has it. -#}
{% macro attempt(name) -%}
    SET @lock_number = {{ number(name) }};
    SET @lock_name = CONVERT(nvarchar(255), @lock_number);
    IF SERVERPROPERTY('Babelfish') IS NULL
        EXEC @lock_got = sys.sp_getapplock
            @Resource = @lock_name, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
    ELSE
        EXEC sys.sp_executesql
            N'SELECT @got = CONVERT(int, pg_catalog.pg_try_advisory_xact_lock(@number)) - 1;',
            N'@number bigint, @got int OUTPUT', @number = @lock_number, @got = @lock_got OUTPUT;
{%- endmacro %}
