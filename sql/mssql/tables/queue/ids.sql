-- One ascending sequence for ids and tickets: a fresh message's ticket is its id.
CREATE SEQUENCE {{ box._ids }} AS bigint START WITH 1 INCREMENT BY 1;
-- SQL Server notes in its log how far the numbers went only once in so many, and after a crash leaves out the rest of
-- them. On Babelfish every session would have so many of its own, and ids would not ascend.
IF SERVERPROPERTY('Babelfish') IS NULL
    ALTER SEQUENCE {{ box._ids }} CACHE 10000;
