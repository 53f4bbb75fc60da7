-- When somebody last cleaned up, and took back leases that had run out; null: never. Only doctor and metrics read it.
CREATE TABLE {{ box._upkeep }} (
    what varchar(10) COLLATE Latin1_General_BIN2 NOT NULL,
    done_at datetime2(6),
    CONSTRAINT {{ key.pk_upkeep }} PRIMARY KEY CLUSTERED (what)
);

INSERT INTO {{ box._upkeep }} (what)
VALUES ('cleanup'), ('reap');
