-- after: set_clock

-- The server's clock, at the time of the call; every routine asks here, once.
-- Tests deploy with a clock that they can move.
-- returns: timestamptz
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER FUNCTION {{ db._now }}()
RETURNS datetime2(6)
AS
BEGIN
{% if test_clock %}
    DECLARE @offset decimal(18, 3) = (SELECT c.offset_seconds FROM {{ db._clock }} AS c);
    RETURN DATEADD(
        MILLISECOND, CONVERT(int, (@offset - FLOOR(@offset)) * 1000),
        DATEADD(SECOND, CONVERT(int, FLOOR(@offset)), CONVERT(datetime2(6), SYSUTCDATETIME()))
    );
{% else %}
    RETURN SYSUTCDATETIME();
{% endif %}
END;
