-- Turns away a key that cannot be one.
-- returns: none
-- errors: PB001
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._ledger_check }}
    @key nvarchar(max)
AS
BEGIN
    SET NOCOUNT ON;

    -- LEN passes over trailing blanks, so an end mark is put behind the text.
    IF @key IS NULL
        OR LEN(@key + N'.') = 1
        OR LEN((@key + N'.') COLLATE Latin1_General_100_BIN2) > 513
        EXEC {{ db._reject }} @argument = N'key', @rule = N'must have from 1 to 512 characters';
END;
