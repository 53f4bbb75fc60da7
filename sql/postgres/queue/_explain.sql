CREATE OR REPLACE FUNCTION {{ box._explain }}(
    topic text,
    payload text,
{% if kind == "inbox" %}
    source text,
    message_id text,
{% else %}
    correlation_id text,
    dedup_key text,
{% endif %}
    due_at timestamptz,
    group_id text,
    priority integer,
    collapse_key text,
    expires_at timestamptz,
    headers jsonb,
    created_at timestamptz,
    delay_seconds double precision
)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Raises the rule that a message broke which _valid has turned away.
    -- returns: boolean; never, it raises
    -- errors: PB001
    -- locks: none
    -- role: internal
DECLARE
    argument text;
    content text;
    moment timestamptz;
BEGIN
    IF payload IS NULL THEN
        PERFORM {{ db._reject }}('payload', 'must not be null');
    ELSIF priority NOT BETWEEN -32768 AND 32767 THEN
        PERFORM {{ db._reject }}('priority', 'must be from -32768 to 32767');
    ELSIF headers IS NOT NULL AND jsonb_typeof(headers) <> 'object' THEN
        PERFORM {{ db._reject }}('headers', 'must be a JSON object');
    ELSIF delay_seconds NOT BETWEEN 0 AND 1000000000 THEN
        PERFORM {{ db._reject }}('delay_seconds', 'must be from 0 to 1000000000');
    ELSIF delay_seconds IS NOT NULL AND due_at IS NOT NULL THEN
        PERFORM {{ db._reject }}('delay_seconds', 'must not be given together with due_at');
    END IF;
    FOR argument, content IN
        VALUES
        ('topic', coalesce(topic, '')),
{% if kind == "inbox" %}
        ('source', coalesce(source, '')),
        ('message_id', coalesce(message_id, '')),
{% else %}
        ('correlation_id', correlation_id),
        ('dedup_key', dedup_key),
{% endif %}
        ('group_id', group_id),
        ('collapse_key', collapse_key)
    LOOP
        IF content = '' AND argument <> 'correlation_id' THEN
            PERFORM {{ db._reject }}(
                argument,
                CASE WHEN argument IN ('dedup_key', 'group_id', 'collapse_key') THEN 'must not be empty' ELSE 'must not be null or empty' END
            );
        ELSIF length(content) > 255 THEN
            PERFORM {{ db._reject }}(argument, 'must not be longer than 255 characters');
        END IF;
    END LOOP;
    FOR argument, moment IN
        VALUES
        ('due_at', due_at),
        ('expires_at', expires_at),
        ({{ ("received_at" if kind == "inbox" else "created_at") | literal }}, created_at)
    LOOP
        IF moment < '0001-01-01 00:00:00+00' OR moment >= '10000-01-01 00:00:00+00' THEN
            PERFORM {{ db._reject }}(argument, 'must be of the years 1 to 9999');
        END IF;
    END LOOP;
    -- Only a rule that is forgotten here leads this far.
    RETURN {{ db._reject }}('messages', 'every rule of enqueue must be kept');
END;
$$;
