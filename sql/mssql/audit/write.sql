{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/clock.sql" as clock with context %}

-- Notes a change, in the transaction of the change.
-- actor: who made it, 1 to 255 characters
-- action: what was done, 1 to 64 characters: replay, pause, configure
-- subject: to what, 1 to 512 characters: a box, a schedule
-- affected: how many were changed, not below 0
-- detail: what else is worth knowing, up to 4000 characters; never a payload
-- returns: id
-- errors: PB001
-- locks: none
-- role: operator
CREATE OR ALTER PROCEDURE {{ db.audit_write }}
    @actor nvarchar(max),
    @action nvarchar(max),
    @subject nvarchar(max) = NULL,
    @affected bigint = NULL,
    @detail nvarchar(max) = NULL
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @written TABLE (id bigint NOT NULL PRIMARY KEY);

    -- LEN passes over trailing blanks, so an end mark is put behind a text.
    IF @actor IS NULL OR LEN((@actor + N'.') COLLATE Latin1_General_100_BIN2) NOT BETWEEN 2 AND 256
    {{ arguments.reject("actor", "must have from 1 to 255 characters") }}
    IF @action IS NULL OR LEN((@action + N'.') COLLATE Latin1_General_100_BIN2) NOT BETWEEN 2 AND 65
    {{ arguments.reject("action", "must have from 1 to 64 characters") }}
    IF LEN((@subject + N'.') COLLATE Latin1_General_100_BIN2) NOT BETWEEN 2 AND 513
    {{ arguments.reject("subject", "must have from 1 to 512 characters") }}
    IF @affected < 0
    {{ arguments.reject("affected", "must not be below 0") }}
    IF LEN((@detail + N'.') COLLATE Latin1_General_100_BIN2) > 4001
    {{ arguments.reject("detail", "must have at most 4000 characters") }}

    INSERT INTO {{ db.audit }} (changed_at, actor, action, subject, affected, detail)
    OUTPUT inserted.id INTO @written (id)
    VALUES ({{ clock.now() }}, @actor, @action, @subject, @affected, @detail);
    SELECT w.id FROM @written AS w;
END;
