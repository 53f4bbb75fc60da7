-- after: reject

-- Turns away wrong arguments of a cleanup.
-- returns: none
-- errors: PB001
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._check_cleanup }}
    @retention_seconds decimal(19, 3),
    @batch_size int
AS
BEGIN
    SET NOCOUNT ON;

    IF @retention_seconds IS NULL OR @retention_seconds NOT BETWEEN 0 AND 1000000000
        EXEC {{ db._reject }} @argument = N'retention_seconds', @rule = N'must be from 0 to 1000000000';
    IF @batch_size IS NULL OR @batch_size NOT BETWEEN 1 AND 10000
        EXEC {{ db._reject }} @argument = N'batch_size', @rule = N'must be from 1 to 10000';
END;
