-- One ascending sequence for ids and tickets: a fresh message's ticket is its id.
-- Whoever writes a place (ready, scheduled, group_member, tally) has touched this sequence before, by drawing from it or
-- by looking at it with pg_sequence_last_value, and after it had its xid: so it shows in pg_locks until it ends.
CREATE SEQUENCE {{ box._ids }} AS bigint;

-- What a tick has noted: the last number and the time, and an xid drawn after both.
CREATE SEQUENCE {{ box._tick_ticket }} AS bigint MINVALUE 0 START 0;
CREATE SEQUENCE {{ box._tick_time }} AS bigint MINVALUE 0 START 0;
CREATE SEQUENCE {{ box._tick_xid }} AS bigint MINVALUE 0 START 0;
-- Everybody who has brought a number up to this one is over.
CREATE SEQUENCE {{ box._settled }} AS bigint MINVALUE 0 START 0;
-- How often messages came back into groups from elsewhere than a lease; and as it was when the tick noted. From 1, or
-- the first one would look like none.
CREATE SEQUENCE {{ box._comebacks }} AS bigint MINVALUE 0 START 1;
CREATE SEQUENCE {{ box._tick_comebacks }} AS bigint MINVALUE 0 START 0;
-- Which server, and which table of it, all of these were made for.
CREATE SEQUENCE {{ box._home }} AS bigint MINVALUE 0 START 0;
-- Which pages a patrol looks at next, to see whether a low mark is too high.
CREATE SEQUENCE {{ box._patrolled }} AS bigint MINVALUE 0 START 0;
