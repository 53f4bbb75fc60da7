-- One row a setting; configure changes them, and checks names and values.
CREATE TABLE {{ box.settings }} (
    name text COLLATE "C" NOT NULL,
    value text NOT NULL,
    CONSTRAINT {{ key.pk_settings }} PRIMARY KEY (name)
);

INSERT INTO {{ box.settings }} (name, value)
VALUES
    ('backoff_base_seconds', '1'),
    ('backoff_cap_seconds', '60'),
    ('dedup_window_seconds', '3600'),
    ('max_attempts', '10'),
    ('notify', 'on');

-- No NOTIFY before this time (milliseconds since 1970): shortly after the last one, or never, by the setting.
CREATE SEQUENCE {{ box._notified }} AS bigint MINVALUE 0 START 0;
