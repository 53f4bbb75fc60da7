-- Raises an invalid argument. Names the argument and the rule it broke, never what was in it.
-- returns: boolean; never, it raises
-- errors: PB001
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._reject }}
    @argument nvarchar(max),
    @rule nvarchar(max)
AS
BEGIN
    SET NOCOUNT ON;

    DECLARE @message nvarchar(2048) = CONCAT(@argument, N': ', @rule);
    THROW 51001, @message, 1;
END;
