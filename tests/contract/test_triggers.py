"""Enqueueing from a trigger: in the transaction of whoever writes the row, who notices nothing of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.support import Box
from tests.support.database import Database

CREATE = {
    "postgres": (
        "CREATE TABLE {schema}.trial_order (id int)",
        """
        CREATE FUNCTION {schema}.trial_announce() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM {schema}.outbox_enqueue('one', new.id::text);
            PERFORM {schema}.outbox_enqueue_many(jsonb_build_array(
                jsonb_build_object('topic', 'many', 'payload', new.id::text)
            ));
            PERFORM {schema}.outbox_enqueue_payloads('payloads', ARRAY[new.id::text]);
            PERFORM {schema}.inbox_enqueue('inbox', 's', new.id::text, '');
            PERFORM {schema}.inbox_enqueue_many(jsonb_build_array(jsonb_build_object(
                'topic', 'inbox', 'source', 'many', 'message_id', new.id::text, 'payload', ''
            )));
            RETURN new;
        END $$
        """,
        """
        CREATE TRIGGER trial_announcing AFTER INSERT ON {schema}.trial_order
        FOR EACH ROW EXECUTE FUNCTION {schema}.trial_announce()
        """,
    ),
    "mssql": (
        "CREATE TABLE {schema}.trial_order (id int)",
        """
        CREATE TRIGGER {schema}.trial_announcing ON {schema}.trial_order AFTER INSERT AS
        BEGIN
            SET NOCOUNT ON;
            DECLARE @id nvarchar(20) = (SELECT CONVERT(nvarchar(20), MIN(i.id)) FROM inserted AS i);
            DECLARE @messages nvarchar(max) = CONCAT(N'[{"topic": "many", "payload": "', @id, N'"}]');
            DECLARE @payloads nvarchar(max) = CONCAT(N'["', @id, N'"]');
            DECLARE @received nvarchar(max) = CONCAT(
                N'[{"topic": "inbox", "source": "many", "message_id": "', @id, N'", "payload": ""}]'
            );
            EXEC {schema}.outbox_enqueue @topic = N'one', @payload = @id;
            EXEC {schema}.outbox_enqueue_many @messages = @messages;
            EXEC {schema}.outbox_enqueue_payloads @topic = N'payloads', @payloads = @payloads;
            EXEC {schema}.inbox_enqueue @topic = N'inbox', @source = N's', @message_id = @id, @payload = N'';
            EXEC {schema}.inbox_enqueue_many @messages = @received;
        END
        """,
    ),
}
DROP = {
    "postgres": ("DROP TABLE {schema}.trial_order", "DROP FUNCTION {schema}.trial_announce()"),
    "mssql": ("DROP TABLE {schema}.trial_order",),
}


@pytest.fixture
def orders(db: Database) -> Iterator[Database]:
    """A table whose trigger enqueues by every routine that does."""
    for statement in CREATE[db.dialect]:
        db.sql(statement)
    yield db
    for statement in DROP[db.dialect]:
        db.sql(statement)


def test_contract_a_trigger_enqueues_in_the_transaction_that_fires_it(
    orders: Database, outbox: Box, inbox: Box
) -> None:
    with orders.session() as session:
        session.sql("INSERT INTO {schema}.trial_order (id) VALUES (1)")
        session.rollback()
        assert (outbox.count(), inbox.count()) == (0, 0)
        session.sql("INSERT INTO {schema}.trial_order (id) VALUES (2)")
        session.commit()
    assert sorted(row["topic"] for row in outbox.claim()) == ["many", "one", "payloads"]
    assert sorted(row["source"] for row in inbox.claim()) == ["many", "s"]


def test_contract_a_statement_that_fires_it_answers_no_rows(orders: Database) -> None:
    """What an enqueue answers elsewhere would be a result set that its writer has not asked for."""
    with contextlib.closing(orders.connection().cursor()) as cursor:
        cursor.execute(f"INSERT INTO {_quoted(orders)}.trial_order (id) VALUES (3)")
        assert _result_sets(cursor) == 0


def _quoted(db: Database) -> str:
    return f'"{db.schema}"'


def _result_sets(cursor: Any) -> int:
    found = int(cursor.description is not None)
    while cursor.nextset():
        found += int(cursor.description is not None)
    return found
