-- One ascending sequence for ids and tickets: a fresh message's ticket is its id.
CREATE SEQUENCE {{ box._ids }} AS bigint START WITH 1 INCREMENT BY 1;
