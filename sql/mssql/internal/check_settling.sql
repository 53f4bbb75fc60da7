-- after: reject

-- Says which argument of a settling call is wrong; callers come here once they know that one is.
-- returns: none
-- errors: PB001
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._check_settling }}
    @owner_token uniqueidentifier,
    @ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT ON;

    IF @owner_token IS NULL
        EXEC {{ db._reject }} @argument = N'owner_token', @rule = N'must not be null';
    IF @owner_token = '00000000-0000-0000-0000-000000000000'
        EXEC {{ db._reject }} @argument = N'owner_token', @rule = N'must not be the nil uuid';
    IF @ids IS NULL
        EXEC {{ db._reject }} @argument = N'ids', @rule = N'must not be null';
    EXEC {{ db._reject }} @argument = N'ids', @rule = N'must be a JSON array of whole numbers';
END;
