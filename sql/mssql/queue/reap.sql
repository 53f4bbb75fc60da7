-- after: _reap, _tick

{% import "macros/arguments.sql" as arguments with context %}
{% import "macros/locks.sql" as locks with context %}
{% import "macros/upkeep.sql" as upkeep with context %}

-- Brings back messages whose lease has run out: claimable at once, with one attempt counted, or dead once their
-- attempts reach max_attempts. Skips what others have locked. Also folds the tally.
-- batch_size: from 1 to 10000
-- returns: affected
-- errors: PB001
-- locks: group, lease, message
-- role: worker
CREATE OR ALTER PROCEDURE {{ box.reap }}
    @batch_size int = 1000
AS
BEGIN
    {{ arguments.begin() }}

    {{ locks.variables() }}
    DECLARE @affected int;

    IF @batch_size IS NULL OR @batch_size NOT BETWEEN 1 AND 10000
    {{ arguments.reject("batch_size", "must be from 1 to 10000") }}

    BEGIN TRANSACTION;
    EXEC {{ box._tick }} @rescan = 1;
    EXEC @affected = {{ box._reap }} @batch_size = @batch_size;
    {{ upkeep.note("reap") }}
    COMMIT TRANSACTION;

    SELECT @affected AS affected;
END;
