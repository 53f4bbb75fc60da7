-- Topics that are not handed out at present; the empty topic stands for the whole box.
CREATE TABLE {{ box.paused }} (
    topic text COLLATE "C" NOT NULL,
    paused_at timestamptz NOT NULL,
    CONSTRAINT {{ key.pk_paused }} PRIMARY KEY (topic)
);
