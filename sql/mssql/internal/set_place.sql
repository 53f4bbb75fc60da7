-- after: reject
{% import "macros/arguments.sql" as arguments with context %}

-- Gives the deployment its place, once for good, and with it every box that has not got it yet.
-- A box's ids go on where the place begins; what was enqueued before keeps its id and its message_id.
-- A sequence ends where its place does, so that whoever would draw from the next place's range fails instead.
-- Called with the deployment's lock held.
-- place: from 0 to 127; null for the one it has, if it has one
-- returns: none
-- errors: PB001, PB003
-- locks: none
-- role: internal
CREATE OR ALTER PROCEDURE {{ db._set_place }}
    @place int
AS
BEGIN
    {{ arguments.begin() }}

    DECLARE @schema nvarchar(128) = OBJECT_SCHEMA_NAME(OBJECT_ID({{ db._box | literal }}));
    DECLARE @known int = (SELECT MAX(p.place) FROM {{ db._place }} AS p);
    DECLARE @first_id bigint = CONVERT(bigint, ISNULL(@known, @place)) * 1099511627776 + 1;
    DECLARE @last_id bigint = @first_id + 1099511627774;
    DECLARE @at_id bigint;
    DECLARE @box_name varchar(30);
    DECLARE @ids nvarchar(300);
    DECLARE @statement nvarchar(max);
    DECLARE @message nvarchar(200) = CONCAT(N'place: the deployment has place ', @known, N', for good; leave it out');

    IF @place NOT BETWEEN 0 AND 127
    {{ arguments.reject("place", "must be from 0 to 127") }}
    IF @place <> @known
    {{ arguments.raise(51003, "@message") }}

    BEGIN TRANSACTION;
    WHILE @first_id IS NOT NULL
    BEGIN
        SET @box_name = (
            SELECT MIN(b.name)
            FROM {{ db._box }} AS b
            WHERE NOT EXISTS (SELECT 1 FROM {{ db._place }} AS p WHERE p.box_name = b.name)
        );
        IF @box_name IS NULL
            BREAK;
        SET @ids = CONCAT(QUOTENAME(@schema), N'.', QUOTENAME(CONCAT('_', @box_name, '_ids')));
        -- What the last number was, not every server tells; the next one is none of a message's then.
        SET @statement = CONCAT(N'SET @at_id = NEXT VALUE FOR ', @ids, N';');
        EXEC sys.sp_executesql @statement, N'@at_id bigint OUTPUT', @at_id = @at_id OUTPUT;
        IF @at_id > @last_id
        BEGIN
            SET @message = CONCAT(
                N'place: box ', @box_name, N' has ids above those of place ', (@first_id - 1) / 1099511627776,
                N'; number a deployment before its first message'
            );
            THROW 51003, @message, 1;
        END;
        SET @statement = CONCAT(
            N'ALTER SEQUENCE ', @ids,
            CASE WHEN @at_id < @first_id THEN CONCAT(N' RESTART WITH ', @first_id) ELSE N'' END,
            N' MAXVALUE ', @last_id, N';'
        );
        EXEC sys.sp_executesql @statement;
        INSERT INTO {{ db._place }} (box_name, place) VALUES (@box_name, (@first_id - 1) / 1099511627776);
    END;
    COMMIT TRANSACTION;
END;
