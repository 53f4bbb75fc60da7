-- One row a setting; configure changes them, and checks names and values.
CREATE TABLE {{ box.settings }} (
    name nvarchar(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    value nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    CONSTRAINT {{ key.pk_settings }} PRIMARY KEY CLUSTERED (name)
);

INSERT INTO {{ box.settings }} (name, value)
VALUES
    (N'backoff_base_seconds', N'1'),
    (N'backoff_cap_seconds', N'60'),
    (N'dedup_window_seconds', N'3600'),
    (N'max_attempts', N'10'),
    (N'notify', N'on');
