{% import "macros/queue.sql" as queue with context %}
CREATE OR REPLACE FUNCTION {{ box._take }}(ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
    -- Takes messages out of wherever they are, unless they are over: waiting, also within a run, or leased to anybody.
    -- The caller decides what becomes of them, in the same transaction; their groups get new tickets at the end.
    -- What another transaction is just moving is waited for, and taken where it then is, unless that is its end. So all
    -- is tried without waiting first. If some were out of reach, everything goes back (a subtransaction lets go of its
    -- locks), and the groups and then the messages are locked one after another in their order, as all do who wait for
    -- several. Whoever moves messages while this waits for others may make it begin anew.
    -- ids: each once
    -- returns: bigint[]; those taken, in id order
    -- errors: none
    -- locks: group, lease, message
    -- role: internal
DECLARE
    left_ids bigint[];
    taken bigint[];
    groups text[];
    held bigint[];
    one_id bigint;
BEGIN
    FOR turn IN 1..100 LOOP
        -- OFFSET 0 keeps a lookup a lookup, whatever the planner knew of the tables when it made the plan.
        left_ids := ARRAY(
            SELECT m.id
            FROM unnest(ids) AS u (id)
            CROSS JOIN LATERAL (SELECT w.* FROM {{ box.message }} AS w WHERE w.id = u.id OFFSET 0) AS m
            WHERE NOT {{ queue.is_done("m.id") | indent(4) }}
                AND NOT EXISTS (SELECT FROM {{ box.dead }} AS d WHERE d.id = m.id OFFSET 0)
{% if kind == "inbox" %}
                -- One that was never enqueued is nowhere.
                AND m.topic IS NOT NULL
{% endif %}
            ORDER BY m.id
        );
        IF left_ids = '{}' THEN
            RETURN '{}';
        END IF;
        BEGIN
            groups := ARRAY(
                SELECT DISTINCT l.group_id
                FROM unnest(left_ids) AS u (id)
                CROSS JOIN LATERAL (SELECT c.group_id FROM {{ box.lease }} AS c WHERE c.id = u.id OFFSET 0) AS l
                WHERE l.group_id IS NOT NULL
            );
            IF turn > 1 THEN
                PERFORM FROM {{ box.group }} AS g WHERE g.group_id = ANY (groups) ORDER BY g.group_id FOR NO KEY UPDATE;
                held := '{}';
                FOREACH one_id IN ARRAY left_ids LOOP
                    IF {{ box._hold }}(one_id) = 'pending' THEN
                        held := held || one_id;
                    END IF;
                END LOOP;
                left_ids := held;
            END IF;
            -- Whoever takes leases of a group does so one after another.
            groups := ARRAY(
                SELECT g.group_id
                FROM {{ box.group }} AS g
                WHERE g.group_id = ANY (groups)
                ORDER BY g.group_id
                FOR NO KEY UPDATE SKIP LOCKED
            );
            WITH gone AS (
                DELETE FROM {{ box.lease }} AS l
                WHERE l.ctid = ANY (ARRAY(
                    SELECT c.ctid
                    FROM {{ box.lease }} AS c
                    WHERE c.id = ANY (left_ids)
                        -- A group without a row nobody can hold.
                        AND (
                            c.group_id IS NULL
                            OR c.group_id = ANY (groups)
                            OR NOT EXISTS (SELECT FROM {{ box.group }} AS g WHERE g.group_id = c.group_id OFFSET 0)
                        )
                    ORDER BY c.id
                    FOR UPDATE SKIP LOCKED
                ))
                RETURNING l.id
            )
            SELECT coalesce(array_agg(gone.id), '{}') INTO taken FROM gone;
            left_ids := ARRAY(SELECT unnest(left_ids) EXCEPT SELECT unnest(taken));
            IF left_ids <> '{}' THEN
                held := {{ box._cut_runs }}(left_ids);
                taken := taken || held;
                left_ids := ARRAY(SELECT unnest(left_ids) EXCEPT SELECT unnest(held));
            END IF;
            IF left_ids <> '{}' THEN
                held := {{ box._withdraw }}(left_ids);
                taken := taken || held;
                IF cardinality(held) < cardinality(left_ids) THEN
                    RAISE EXCEPTION USING ERRCODE = 'no_data_found';
                END IF;
            END IF;
            RETURN ARRAY(SELECT u.id FROM unnest(taken) AS u (id) ORDER BY u.id);
        EXCEPTION
            WHEN no_data_found THEN NULL;
        END;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = 'ids: these messages do not stand still, try again';
END;
$$;
