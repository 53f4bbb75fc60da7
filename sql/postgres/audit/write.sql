CREATE OR REPLACE FUNCTION {{ db.audit_write }}(
    actor text,
    action text,
    subject text DEFAULT NULL,
    affected bigint DEFAULT NULL,
    detail text DEFAULT NULL
)
RETURNS TABLE (id bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Notes a change, in the transaction of the change.
    -- actor: who made it, 1 to 255 characters
    -- action: what was done, 1 to 64 characters: replay, pause, configure
    -- subject: to what, 1 to 512 characters: a box, a schedule
    -- affected: how many were changed, not below 0
    -- detail: what else is worth knowing, up to 4000 characters; never a payload
    -- returns: id
    -- errors: PB001
    -- locks: none
    -- role: operator
BEGIN
    IF actor IS NULL OR char_length(actor) NOT BETWEEN 1 AND 255 THEN
        PERFORM {{ db._reject }}('actor', 'must have from 1 to 255 characters');
    ELSIF action IS NULL OR char_length(action) NOT BETWEEN 1 AND 64 THEN
        PERFORM {{ db._reject }}('action', 'must have from 1 to 64 characters');
    ELSIF char_length(subject) NOT BETWEEN 1 AND 512 THEN
        PERFORM {{ db._reject }}('subject', 'must have from 1 to 512 characters');
    ELSIF affected < 0 THEN
        PERFORM {{ db._reject }}('affected', 'must not be below 0');
    ELSIF char_length(detail) > 4000 THEN
        PERFORM {{ db._reject }}('detail', 'must have at most 4000 characters');
    END IF;
    RETURN QUERY
    INSERT INTO {{ db.audit }} AS a (changed_at, actor, action, subject, affected, detail)
    VALUES ({{ db._now }}(), $1, $2, $3, $4, $5)
    RETURNING a.id;
END;
$$;
