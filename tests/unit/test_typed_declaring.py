"""Classes of messages, and the calls that their objects become."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from pysqlbox.errors import InvalidArgument
from pysqlbox.typed import (
    HasCollapseKey,
    HasDeduplicationId,
    HasExternalId,
    HasGroupId,
    HasReceivedAt,
    declared_topic,
    message,
    topic_of,
)
from pysqlbox.typed.publishing import incoming, outgoing

THEN = datetime(2020, 1, 1, tzinfo=UTC)


class Spy:
    """What the calls of an outbox and an inbox would be given."""

    def publish(self, value: object, **options: Any) -> Any:
        return outgoing(value, options)

    def receive(self, value: object, **options: Any) -> Any:
        return incoming(value, options)


def _spy() -> Any:
    return Spy()


@message("base", group_id="customer", priority=3, source="shop")
@dataclass
class Base:
    customer: str


@message(
    "order.created",
    dedup_key=lambda order: f"order-{order.id}",
    collapse_key="latest",
    message_id="id",
    correlation_id="trace",
    received_at="at",
    headers="about",
)
@dataclass
class OrderCreated(Base):
    id: UUID
    at: datetime | None = THEN
    trace: str | None = None

    def latest(self) -> str:
        return f"latest-{self.customer}"

    @property
    def about(self) -> dict[str, str]:
        return {"a": "b"}


class Undeclared(OrderCreated):
    pass


@message("activity")
@dataclass
class Activity:
    """As the inbox library's interfaces have it."""

    id: UUID

    def get_group_id(self) -> str:
        return "group"

    def get_deduplication_id(self) -> str:
        return "dedup"

    def get_collapse_key(self) -> str:
        return "collapse"

    def get_id(self) -> UUID:
        return self.id

    def get_received_at(self) -> datetime:
        return THEN


def test_a_class_says_its_topic_and_a_subclass_says_its_own() -> None:
    assert topic_of(OrderCreated) == "order.created"
    assert topic_of("as it is") == "as it is"
    assert declared_topic(Base) == "base"
    assert declared_topic(Undeclared) is declared_topic("text") is declared_topic(int) is None
    for kind in (Undeclared, int):
        with pytest.raises(InvalidArgument, match=f"topic: {kind.__qualname__} declares none"):
            topic_of(kind)


def test_publish_takes_the_keys_from_the_object() -> None:
    order = OrderCreated("c", uuid4(), trace="trace")
    assert _spy().publish(order) == {
        "topic": "order.created",
        "payload": order,
        "group_id": "c",
        "priority": 3,
        "dedup_key": f"order-{order.id}",
        "collapse_key": "latest-c",
        "message_id": order.id,
        "correlation_id": "trace",
        "created_at": THEN,
        "headers": {"a": "b"},
    }


def test_the_methods_of_the_interfaces_say_the_same() -> None:
    activity = Activity(uuid4())
    for protocol in (HasCollapseKey, HasDeduplicationId, HasExternalId, HasGroupId, HasReceivedAt):
        assert isinstance(activity, protocol)
    keys = {"group_id": "group", "collapse_key": "collapse"}
    assert _spy().publish(activity) == {
        "topic": "activity",
        "payload": activity,
        **keys,
        "dedup_key": "dedup",
        "message_id": activity.id,
        "created_at": THEN,
    }
    assert _spy().receive(activity, source="s") == {
        "topic": "activity",
        "payload": activity,
        **keys,
        "source": "s",
        "message_id": str(activity.id),
        "received_at": THEN,
    }


def test_the_call_goes_before_the_class_and_the_declaration_before_the_methods() -> None:
    message("activity", group_id=lambda _: "declared")(Activity)
    try:
        activity = Activity(uuid4())
        assert _spy().publish(activity)["group_id"] == "declared"
        found: Any = _spy().publish(activity, topic="other", group_id=None, priority=0, dedup_key="mine")
        assert (found["topic"], found["priority"], found["dedup_key"]) == ("other", 0, "mine")
        assert "group_id" not in found
        assert _spy().publish(Undeclared("c", uuid4()), topic="t")["group_id"] == "c"
    finally:
        message("activity")(Activity)


def test_receive_needs_the_senders_id_and_name() -> None:
    @message("plain")
    @dataclass
    class Plain:
        id: int

    with pytest.raises(InvalidArgument, match=r"source: .*Plain says none"):
        _spy().receive(Plain(1))
    with pytest.raises(InvalidArgument, match=r"message_id: .*Plain says none"):
        _spy().receive(Plain(1), source="s")
    assert _spy().receive(Plain(1), source="s", message_id="m")["message_id"] == "m"
    message("plain", dedup_key="id")(Plain)
    assert _spy().receive(Plain(1), source="s")["message_id"] == "1"
    order = OrderCreated("c", uuid4())
    found: Any = _spy().receive(order)
    assert (found["source"], found["message_id"]) == ("shop", str(order.id))
    assert "correlation_id" not in found
    assert "dedup_key" not in found


def test_bad_declarations_are_refused() -> None:
    for topic in ("", "x" * 256, 5, None):
        with pytest.raises(InvalidArgument, match="topic"):
            message(topic)  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(InvalidArgument, match="group_id: must name"):
        message("t", group_id=5)  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(InvalidArgument, match="must decorate a class"):
        message("t")(lambda: None)  # type: ignore[type-var]  # what the test is about

    @message("t", group_id="missing")
    class Empty:
        pass

    with pytest.raises(InvalidArgument, match=r"group_id: .*Empty has no attribute 'missing'"):
        _spy().publish(Empty())
