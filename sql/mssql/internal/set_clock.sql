{% import "macros/arguments.sql" as arguments with context %}
{% if test_clock %}
IF OBJECT_ID(N'{{ db._clock }}', N'U') IS NULL
BEGIN
    CREATE TABLE {{ db._clock }} (
        offset_seconds decimal(18, 3) NOT NULL
    );
    INSERT INTO {{ db._clock }} (offset_seconds) VALUES (0);
END;
GO
-- Puts the test clock the given number of seconds ahead of the server's. Deployed for tests only.
-- returns: none
-- errors: none
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._set_clock }}
    @offset_seconds decimal(18, 3)
AS
BEGIN
    {{ arguments.begin() }}

    UPDATE {{ db._clock }} SET offset_seconds = @offset_seconds;
END;
{% endif %}
