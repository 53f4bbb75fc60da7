-- after: reject

-- Says which of a worker's arguments is wrong; callers come here once they know that one is.
-- returns: none
-- errors: PB001
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._check_owner }}
    @owner_token uniqueidentifier,
    @lease_seconds int,
    @batch_size int
AS
BEGIN
    SET NOCOUNT ON;

    IF @owner_token IS NULL
        EXEC {{ db._reject }} @argument = N'owner_token', @rule = N'must not be null';
    IF @owner_token = '00000000-0000-0000-0000-000000000000'
        EXEC {{ db._reject }} @argument = N'owner_token', @rule = N'must not be the nil uuid';
    IF @lease_seconds IS NULL OR @lease_seconds NOT BETWEEN 1 AND 86400
        EXEC {{ db._reject }} @argument = N'lease_seconds', @rule = N'must be from 1 to 86400';
    IF @batch_size IS NULL OR @batch_size NOT BETWEEN 1 AND 10000
        EXEC {{ db._reject }} @argument = N'batch_size', @rule = N'must be from 1 to 10000';
END;
