"""Keys in T-SQL: application locks instead of trial and error, and bugs planted there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pysqlbox.errors import PysqlboxError
from tests.concurrency import scenarios_tsql as tsql
from tests.concurrency.planting import Bug, planted
from tests.support.database import Database

pytestmark = pytest.mark.dialect("mssql")

Scenario = Callable[[Database], None]

_LOCK = '{{ locks.wait(locks.message_key("@source_key", "@message_id_key"), "message_id")'

PLANTED: list[tuple[Bug, Scenario]] = [
    (
        Bug(
            "a dedup key without its lock",
            "outbox/_enqueue.sql",
            [('{{ locks.wait(locks.key("dedup", "@dedup_key"), "dedup_key") | indent(4) }}', "")],
        ),
        tsql.a_dedup_key_is_decided_by_its_first_enqueue,
    ),
    (
        Bug(
            "a message_id without its lock",
            "outbox/_enqueue.sql",
            [('{{ locks.wait(locks.key("message_id", "@message_id"), "message_id") | indent(4) }}', "")],
        ),
        tsql.a_message_id_is_decided_by_its_first_enqueue,
    ),
    (
        Bug("an inbox key without its lock", "inbox/_enqueue.sql", [(f"{_LOCK} }}}}", "")], "inbox"),
        tsql.an_inbox_key_is_decided_by_its_first_enqueue,
    ),
    (
        Bug(
            "a batch of inbox keys without their locks",
            "inbox/enqueue_many.sql",
            [('{{ records.lock_keys("message_id") }}', "")],
            "inbox",
        ),
        tsql.a_batch_of_inbox_keys_is_decided_by_the_first,
    ),
    (
        Bug(
            "a batch of dedup keys without their locks",
            "outbox/enqueue_many.sql",
            [('{{ records.lock_keys("dedup_key") | indent(4) }}', "")],
        ),
        tsql.a_batch_of_dedup_keys_is_decided_by_the_first,
    ),
    (
        Bug(
            "keys of a batch in the order of their records",
            "inbox/enqueue_many.sql",
            [
                (
                    '{{ records.lock_keys("message_id") }}',
                    """
                    DECLARE @wanted int = 1;
                    WHILE @wanted <= (SELECT COUNT(*) FROM @record)
                    BEGIN
                        SELECT @source_key = r.source_key, @message_id_key = r.message_id_key
                        FROM @record AS r WHERE r.ordinal = @wanted;
                        {{ locks.wait(locks.message_key("@source_key", "@message_id_key"), "message_id") }}
                        SET @wanted += 1;
                    END;
                    """,
                )
            ],
            "inbox",
        ),
        tsql.a_batch_of_inbox_keys_is_decided_by_the_first,
    ),
    (
        Bug(
            "a sighting without its lock",
            "inbox/already_processed.sql",
            [(f"{_LOCK} | indent(4) }}}}", "")],
            "inbox",
        ),
        tsql.a_sighting_is_decided_by_the_first,
    ),
    (
        Bug(
            "a ledger key without its lock",
            "ledger/try_begin.sql",
            [('{{ locks.wait(locks.ledger_key("@ledger_key"), "key") | indent(4) }}', "")],
        ),
        tsql.a_ledger_key_is_decided_by_its_first_consumer,
    ),
    (
        Bug(
            "the ledger's lock for every question",
            "ledger/try_begin.sql",
            [("    IF @status IS NULL\n    BEGIN", "    SET @status = NULL;\n    BEGIN")],
        ),
        tsql.what_the_ledger_knows_is_told_without_waiting,
    ),
]
"""Each guard that is taken out turns its scenario red."""


@pytest.mark.parametrize("scenario", tsql.SCENARIOS, ids=[each.__name__ for each in tsql.SCENARIOS])
def test_keys(scenario: Scenario, db: Database) -> None:
    scenario(db)


@pytest.mark.parametrize(
    ("bug", "scenario"),
    PLANTED,
    ids=[f"{bug.name}-{scenario.__name__}".replace(" ", "_") for bug, scenario in PLANTED],
)
def test_planted_bug(bug: Bug, scenario: Scenario, db: Database, tmp_path: Path) -> None:
    """The scenario goes red."""
    with planted(db, bug, tmp_path), pytest.raises((AssertionError, PysqlboxError)):
        scenario(db)
