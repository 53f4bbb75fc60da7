CREATE OR REPLACE FUNCTION {{ box.configure }}(INOUT name text, INOUT value text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Changes one setting of the box, from the next call of any routine on.
    -- name: dedup_window_seconds, max_attempts, backoff_base_seconds, backoff_cap_seconds or notify
    -- value: seconds from 0 to 1000000000 (the backoff's above 0), attempts from 0 (no limit) to 1000000, notify on or off
    -- returns: name, value
    -- errors: PB001
    -- locks: none
    -- role: operator
BEGIN
    IF name IS NULL OR name NOT IN (
        'dedup_window_seconds', 'max_attempts', 'backoff_base_seconds', 'backoff_cap_seconds', 'notify'
    ) THEN
        PERFORM {{ db._reject }}('name', 'must be dedup_window_seconds, max_attempts, backoff_base_seconds, '
            || 'backoff_cap_seconds or notify');
    ELSIF value IS NULL THEN
        PERFORM {{ db._reject }}('value', 'must not be null');
    ELSIF name = 'notify' THEN
        IF value NOT IN ('on', 'off') THEN
            PERFORM {{ db._reject }}('value', 'must be on or off');
        END IF;
        PERFORM setval({{ box._notified | literal }}, CASE value WHEN 'on' THEN 0 ELSE 9000000000000000000 END);
    ELSIF value !~ '^[0-9]{1,10}([.][0-9]{1,6})?$' THEN
        PERFORM {{ db._reject }}('value', 'must be a plain number');
    ELSIF name = 'max_attempts' AND (value !~ '^[0-9]+$' OR value::numeric > 1000000) THEN
        PERFORM {{ db._reject }}('value', 'must be a whole number from 0 to 1000000');
    ELSIF value::numeric > 1000000000 OR (name LIKE 'backoff%' AND value::numeric = 0) THEN
        PERFORM {{ db._reject }}('value', 'must be at most 1000000000, and above 0 for the backoff');
    END IF;
    UPDATE {{ box.settings }} AS s SET value = $2 WHERE s.name = $1;
END;
$$;
