"""A refused argument costs the caller nothing but the call: its transaction goes on."""

from __future__ import annotations

from uuid import UUID

import pytest

from pysqlbox.errors import InvalidArgument, InvalidState, NotFound
from tests.contract.support import NIL, OWNER
from tests.support.database import Database

MISSING = UUID("44444444-4444-4444-8444-444444444444")
BAD: dict[str, tuple[str, dict[str, object]]] = {
    "empty topic": ("outbox_enqueue", {"topic": "", "payload": "p"}),
    "null payload": ("outbox_enqueue", {"topic": "t", "payload": None}),
    "bad headers": ("outbox_enqueue", {"topic": "t", "payload": "p", "headers": "{"}),
    "bad record": ("outbox_enqueue_many", {"messages": '[{"topic": "t"}]'}),
    "no array": ("outbox_enqueue_many", {"messages": "nonsense"}),
    "inbox source": ("inbox_enqueue", {"topic": "t", "source": "", "message_id": "1", "payload": "p"}),
    "nil owner": ("outbox_claim", {"owner_token": NIL, "lease_seconds": 30, "batch_size": 1, "topics": None}),
    "no lease": ("outbox_claim", {"owner_token": OWNER, "lease_seconds": 0, "batch_size": 1, "topics": None}),
    "null ids": ("outbox_ack", {"owner_token": OWNER, "ids": None}),
    "bad ids": ("outbox_ack", {"owner_token": OWNER, "ids": "[1, x"}),
    "bad delay": ("outbox_abandon", {"owner_token": OWNER, "ids": "[1]", "delay_seconds": -1}),
    "bad outcome": ("outbox_settle", {"owner_token": OWNER, "outcomes": '[{"id": 1, "result": "x"}]'}),
    "no steps": ("join_start", {"tenant_id": "t", "expected_steps": 0, "metadata": None}),
    "no join": ("join_attach", {"join_id": MISSING, "message_id": MISSING}),
    "no message": ("outbox_get", {"id": 999}),
    "empty key": ("ledger_try_begin", {"key": "", "owner": "o", "lease_seconds": 1, "handler": None}),
    "bad setting": ("outbox_configure", {"name": "nonsense", "value": "1"}),
    "bad retention": ("outbox_cleanup", {"retention_seconds": -1, "batch_size": 10}),
}


@pytest.mark.parametrize("name", BAD)
def test_an_argument_error_leaves_the_transaction_usable(server: Database, name: str) -> None:
    routine, arguments = BAD[name]
    with server.session() as session:
        session.call("outbox_enqueue", topic="before", payload="p")
        with pytest.raises((InvalidArgument, InvalidState, NotFound)):
            session.call(routine, **arguments)
        state = session.sql("SELECT @@TRANCOUNT AS n, XACT_STATE() AS state")[0]
        assert state == {"n": 1, "state": 1}
        session.call("outbox_enqueue", topic="after", payload="p")
        session.commit()
    rows = server.sql("SELECT topic FROM {schema}.outbox_messages ORDER BY id")
    assert [row["topic"] for row in rows] == ["before", "after"]
