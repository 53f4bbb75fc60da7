{% import "macros/queue.sql" as queue with context %}
{% import "macros/texts.sql" as texts with context %}
CREATE OR REPLACE FUNCTION {{ box._bury }}(
    ids bigint[],
    error text,
    expired boolean,
    cancelled boolean DEFAULT false
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Makes messages dead that the caller has just taken out of where they were. Their groups are the caller's to
    -- give a new ticket.
    -- error: kept as last_error, up to 16384 characters; null leaves what is there
    -- returns: none
    -- errors: none
    -- locks: message
    -- role: internal
DECLARE
    new_error CONSTANT text := {{ texts.cut("error") }};
    now_at timestamptz := {{ db._now }}();
BEGIN
    IF new_error IS NOT NULL THEN
        UPDATE {{ box.message }} AS m
        SET last_error = new_error
        WHERE m.id = ANY (ids);
    END IF;

    WITH buried AS (
        INSERT INTO {{ box.dead }} (id, died_at, expired, cancelled, topic)
        SELECT m.id, now_at, expired, cancelled, m.topic
        FROM {{ box.message }} AS m
        WHERE m.id = ANY (ids)
        ORDER BY m.id
        RETURNING topic
    )
    {{ queue.count_dead("buried") }};
{% if box_name == "outbox" %}

    IF EXISTS (SELECT FROM {{ db.join_member }}) THEN
        PERFORM {{ db._join_count }}(ids, 'failed');
    END IF;
{% endif %}
END;
$$;
