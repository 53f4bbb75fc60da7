{% import "macros/arguments.sql" as arguments with context %}

-- A worker says that it ends: it is seen no more.
-- owner_token: what it claimed by; not the nil uuid
-- returns: affected; 0 if it was not known
-- errors: PB001
-- locks: none
-- role: worker
CREATE OR ALTER PROCEDURE {{ db.worker_leave }}
    @owner_token uniqueidentifier
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @affected int;

    IF @owner_token IS NULL OR @owner_token = '00000000-0000-0000-0000-000000000000'
    {{ arguments.reject("owner_token", "must not be null or the nil uuid") }}

    DELETE FROM {{ db.worker }} WITH (ROWLOCK)
    WHERE owner_token = @owner_token;
    SET @affected = @@ROWCOUNT;
    SELECT @affected AS affected;
END;
