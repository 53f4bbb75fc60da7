CREATE OR REPLACE FUNCTION {{ db.join_report_completed }}(join_id uuid, message_id uuid)
RETURNS TABLE (counted boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Counts a step as completed, whatever becomes of its message. A step counts once, whichever way it is told.
    -- join_id: not null
    -- message_id: of a step of the join
    -- returns: counted; false if it was counted before
    -- errors: PB001, PB002
    -- locks: group, lease, message
    -- role: worker
BEGIN
    RETURN QUERY SELECT {{ db._join_report }}(join_id, message_id, 'completed');
END;
$$;
