-- When somebody last cleaned up, and took back leases that had run out (microseconds since 1970; 0: never). Only doctor and
-- metrics read them. A sequence leaves no dead rows behind, and nobody waits for whoever sets it.
CREATE SEQUENCE {{ box._cleaned }} AS bigint MINVALUE 0 START 0;
CREATE SEQUENCE {{ box._reaped }} AS bigint MINVALUE 0 START 0;
