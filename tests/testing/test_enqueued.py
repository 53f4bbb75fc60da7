"""What assertions find of what was enqueued, and the clock, on every engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest

import pysqlbox
from pysqlbox import testing
from pysqlbox.errors import InvalidArgument, InvalidState
from pysqlbox.typed import message


@message("order.created")
@dataclass
class OrderCreated:
    """A message class."""

    order: int


def test_finds_by_topic_and_payload(deployment: pysqlbox.Deployment) -> None:
    """The first that fits, be it waiting, delayed, done or dead."""
    outbox = deployment.outbox
    first = outbox.publish(OrderCreated(1))
    second = outbox.publish(OrderCreated(2))
    third = outbox.publish(OrderCreated(2))
    outbox.enqueue("order.created", "no JSON")
    owner = uuid4()
    outbox.claim(owner, batch_size=2)
    outbox.ack(owner, [first.id])
    outbox.fail(owner, [second.id], "no")

    assert testing.assert_enqueued(outbox, "order.created").status == "Done"
    found = testing.assert_enqueued(outbox, OrderCreated, where=lambda order: order["order"] == 2)
    assert (found.id, found.status, found.payload) == (second.id, "Failed", '{"order":2}')
    assert found.message_id == second.message_id
    twos = testing.enqueued(outbox, where=lambda order: order["order"] == 2)
    assert [each.id for each in twos] == [second.id, third.id]
    assert testing.assert_enqueued(outbox, OrderCreated, where=lambda text: text == "no JSON")


def test_finds_in_an_inbox(deployment: pysqlbox.Deployment) -> None:
    """Also what was only delayed."""
    deployment.inbox.enqueue("paid", "stripe", "evt_1", {"amount": 5}, delay=60)
    found = testing.assert_enqueued(deployment.inbox, "paid", where=lambda paid: paid["amount"] == 5)
    assert (found.source, found.message_id) == ("stripe", "evt_1")


def test_finds_in_an_open_transaction(deployment: pysqlbox.Deployment) -> None:
    """With the connection of that transaction."""
    with deployment.transaction() as connection:
        deployment.outbox.enqueue("mail", "x", connection=connection)
        assert testing.assert_enqueued(deployment.outbox, "mail", connection=connection).payload == "x"


def test_a_failure_lists_what_is_there(deployment: pysqlbox.Deployment) -> None:
    """Of the topic if it has messages, otherwise of the box."""
    outbox = deployment.outbox
    with pytest.raises(AssertionError, match=r"^no message of topic 'mail' in outbox: the box is empty$"):
        testing.assert_enqueued(outbox, "mail")
    first = outbox.enqueue("order.created", {"order": 1})
    with pytest.raises(AssertionError) as caught:
        testing.assert_enqueued(outbox, "mail", where=lambda mail: mail["to"] == "ann")
    title, line = str(caught.value).splitlines()
    assert title == "no message of topic 'mail' in outbox; what is there:"
    assert line.split() == [str(first.id), "Ready", "order.created", '{"order":1}']
    for number in range(25):
        outbox.enqueue("mail", {"to": "bob", "text": f"{number}\n" * 100})
    with pytest.raises(AssertionError) as caught:
        testing.assert_enqueued(outbox, "mail", where=lambda mail: mail["to"] == "ann")
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "no message of topic 'mail' in outbox has a payload that where= accepts; what is there:"
    )
    assert (len(lines), lines[-1]) == (22, "  and 5 more")
    assert all(re.match(r" +\d+  Ready +mail  \{.{150,}…$", line) for line in lines[1:-1])


def test_a_fault_of_the_predicate_s_own_is_raised(deployment: pysqlbox.Deployment) -> None:
    """Only what comes of a payload's shape means no."""
    deployment.outbox.enqueue("mail", {"to": "ann"})
    with pytest.raises(ZeroDivisionError):
        testing.assert_enqueued(deployment.outbox, "mail", where=lambda _: 1 / 0)


def test_the_clock_moves_on(deployment: pysqlbox.Deployment) -> None:
    """In steps that add up, whoever takes them; and back to the server's time."""
    clock = testing.clock(deployment)
    owner = uuid4()
    made = deployment.outbox.enqueue("mail", "x", delay=100)
    clock.advance(60)
    assert deployment.outbox.claim(owner) == []
    testing.clock(deployment).advance(timedelta(seconds=40.5))
    assert clock.ahead == timedelta(seconds=100.5)
    assert [each.id for each in deployment.outbox.claim(owner)] == [made.id]
    with pytest.raises(InvalidArgument, match="time does not go back"):
        clock.advance(-1)
    clock.reset()
    assert clock.ahead == timedelta(0)


def test_a_clock_that_cannot_be_moved(empty_url: str) -> None:
    """Says how it could be."""
    with pysqlbox.connect(empty_url) as db:
        db.migrate(allow_unfit_database=True)
        with pytest.raises(InvalidState, match="test_clock=True"):
            testing.clock(db)
