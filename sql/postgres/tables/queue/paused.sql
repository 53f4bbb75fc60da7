-- Topics that are not handed out at present; the empty topic stands for the whole box.
CREATE TABLE {{ box.paused }} (
    topic text COLLATE "C" NOT NULL,
    paused_at timestamptz NOT NULL,
    CONSTRAINT {{ key.pk_paused }} PRIMARY KEY (topic)
);

-- Set once the box has had a pause or a priority: until then claims look for neither.
CREATE SEQUENCE {{ box._special }} AS bigint MINVALUE 0 START 0;
