-- Topics that are not handed out at present; the key form of the empty topic stands for the whole box.
CREATE TABLE {{ box.paused }} (
    topic_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    paused_at datetime2(6) NOT NULL,
    CONSTRAINT {{ key.pk_paused }} PRIMARY KEY CLUSTERED (topic_key)
);
