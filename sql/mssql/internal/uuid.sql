-- A time-ordered uuid (version 7): milliseconds first, so that the unique index grows at one end.
-- SQL Server orders a uniqueidentifier by its last six bytes first, so the time stands there, in hundredths of a
-- second since 1970 as decimal digits, and the unique index grows at one end. Version 8 (RFC 9562) leaves the
-- layout to its maker; a version 7 has its time in front, which would scatter the index.
-- random: from NEWID(), which a function may not call
-- at: the time of the call
-- returns: uuid
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER FUNCTION {{ db._uuid }} (@random uniqueidentifier, @at datetime2(6))
RETURNS uniqueidentifier
AS
BEGIN
    RETURN CONVERT(uniqueidentifier, STUFF(STUFF(CONVERT(char(36), @random), 15, 1, '8'), 25, 12, RIGHT(
        CONCAT('000000000000', DATEDIFF_BIG(MILLISECOND, '1970-01-01', @at) / 10), 12)));
END;
