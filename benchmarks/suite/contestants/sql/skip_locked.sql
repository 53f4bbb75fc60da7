-- The barest queue: rows that a consumer deletes as it takes them. What was taken when a consumer dies is lost.
CREATE SCHEMA bare;

CREATE TABLE bare.message (
    id bigint GENERATED ALWAYS AS IDENTITY,
    created_at timestamptz NOT NULL DEFAULT now(),
    topic text COLLATE "C" NOT NULL,
    payload text NOT NULL,
    CONSTRAINT pk_message PRIMARY KEY (id)
);
