-- A time-ordered uuid (version 7): milliseconds first. SQL Server orders a uniqueidentifier by its last six bytes
-- before all others, so four of the random ones there are given up: the first to the id's place, under a bit that is
-- always set, and three to the minute, modulo 32 years. So its unique index grows at one end too, and 42 random bits a
-- millisecond are left.
-- random: from NEWID(), which a function may not call
-- at: the time of the call
-- id: of the message that it is for, of which only the place counts; 0 for what has none
-- returns: uuid
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER FUNCTION {{ db._uuid }}(@random uniqueidentifier, @at datetime2(6), @id bigint)
RETURNS uniqueidentifier
AS
BEGIN
    DECLARE @ms bigint = DATEDIFF_BIG(MILLISECOND, '1970-01-01', @at);
    DECLARE @minutes bigint = @ms / 60000;
    DECLARE @place bigint = @id / 1099511627776 % 128;
    DECLARE @hex char(16) = '0123456789abcdef';
    RETURN CONVERT(uniqueidentifier, CONCAT(
        SUBSTRING(@hex, 1 + @ms / 17592186044416 % 16, 1), SUBSTRING(@hex, 1 + @ms / 1099511627776 % 16, 1),
        SUBSTRING(@hex, 1 + @ms / 68719476736 % 16, 1), SUBSTRING(@hex, 1 + @ms / 4294967296 % 16, 1),
        SUBSTRING(@hex, 1 + @ms / 268435456 % 16, 1), SUBSTRING(@hex, 1 + @ms / 16777216 % 16, 1),
        SUBSTRING(@hex, 1 + @ms / 1048576 % 16, 1), SUBSTRING(@hex, 1 + @ms / 65536 % 16, 1), '-',
        SUBSTRING(@hex, 1 + @ms / 4096 % 16, 1), SUBSTRING(@hex, 1 + @ms / 256 % 16, 1),
        SUBSTRING(@hex, 1 + @ms / 16 % 16, 1), SUBSTRING(@hex, 1 + @ms % 16, 1), '-7',
        SUBSTRING(CONVERT(char(36), @random), 16, 9),
        SUBSTRING(@hex, 9 + @place / 16, 1), SUBSTRING(@hex, 1 + @place % 16, 1),
        SUBSTRING(@hex, 1 + @minutes / 1048576 % 16, 1), SUBSTRING(@hex, 1 + @minutes / 65536 % 16, 1),
        SUBSTRING(@hex, 1 + @minutes / 4096 % 16, 1), SUBSTRING(@hex, 1 + @minutes / 256 % 16, 1),
        SUBSTRING(@hex, 1 + @minutes / 16 % 16, 1), SUBSTRING(@hex, 1 + @minutes % 16, 1),
        SUBSTRING(CONVERT(char(36), @random), 33, 4)
    ));
END;
