"""A ledger beside the box, kept by triggers: what came into it, what was done, what was deleted."""

from __future__ import annotations

from tests.contract.support import Row
from tests.support.database import Database

_TRIGGERS = """
CREATE TABLE {schema}.ledger_of_{b} (
    no bigserial, what text NOT NULL, id bigint NOT NULL, group_id text, keyed boolean
);
CREATE FUNCTION {schema}.note_{b}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moved record;
BEGIN
    IF TG_OP = 'INSERT' THEN moved := NEW; ELSE moved := OLD; END IF;
    INSERT INTO {schema}.ledger_of_{b} (what, id, group_id, keyed)
    SELECT TG_TABLE_NAME || ' ' || TG_OP, run.id, m.group_id, m.collapse_key IS NOT NULL
    -- A row of done stands for a run of messages.
    FROM generate_series(
        moved.id, moved.id - 1 + coalesce((to_jsonb(moved) ->> 'span')::integer, 1)
    ) AS run (id)
    LEFT JOIN {schema}.{b}_message AS m ON m.id = run.id
    ORDER BY run.id;
    RETURN moved;
END;
$$;
CREATE TRIGGER note_insert AFTER INSERT ON {schema}.{b}_message
    FOR EACH ROW EXECUTE FUNCTION {schema}.note_{b}();
CREATE TRIGGER note_delete BEFORE DELETE ON {schema}.{b}_message
    FOR EACH ROW EXECUTE FUNCTION {schema}.note_{b}();
CREATE TRIGGER note AFTER INSERT OR DELETE ON {schema}.{b}_done
    FOR EACH ROW EXECUTE FUNCTION {schema}.note_{b}();
CREATE TRIGGER note AFTER INSERT OR DELETE ON {schema}.{b}_dead
    FOR EACH ROW EXECUTE FUNCTION {schema}.note_{b}();
"""
_REMOVAL = """
DROP TABLE IF EXISTS {schema}.ledger_of_{b};
DROP FUNCTION IF EXISTS {schema}.note_{b}() CASCADE;
"""


def keep_accounts(db: Database, box: str) -> None:
    """Puts the triggers on."""
    db.sql(_TRIGGERS.replace("{b}", box))


def drop_accounts(db: Database, box: str) -> None:
    """Takes them off, for the deployment is used again."""
    db.sql(_REMOVAL.replace("{b}", box))


def done_in_order(db: Database, box: str) -> list[Row]:
    """Every message done, in the order in which that happened: id, group_id."""
    return db.sql(
        f"SELECT id, group_id FROM {{schema}}.ledger_of_{box} WHERE what = '{box}_done INSERT' ORDER BY no"
    )


def check_accounts(db: Database, box: str) -> None:
    """Nothing was done twice; what is gone was done or dead and deleted, or replaced by a newer message."""
    # A cleanup that takes part of a run enters the rest anew.
    twice = db.sql(
        f"SELECT id FROM {{schema}}.ledger_of_{box} WHERE what LIKE '{box}\\_done %'"
        f" GROUP BY id HAVING sum(CASE what WHEN '{box}_done INSERT' THEN 1 ELSE -1 END) > 1"
    )
    assert not twice, f"done twice: {twice[:5]}"
    lost = db.sql(
        f"SELECT e.id FROM {{schema}}.ledger_of_{box} AS e"
        f" WHERE e.what = '{box}_message INSERT'"
        f" AND NOT EXISTS (SELECT 1 FROM {{schema}}.{box}_message AS m WHERE m.id = e.id)"
        f" AND NOT EXISTS (SELECT 1 FROM {{schema}}.ledger_of_{box} AS x WHERE x.id = e.id"
        f" AND (x.what IN ('{box}_done DELETE', '{box}_dead DELETE')"
        f" OR (x.what = '{box}_message DELETE' AND x.keyed)))"
    )
    assert not lost, f"gone without a trace: {lost[:5]}"
