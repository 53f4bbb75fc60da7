"""What to do together, and in which order, of the messages of one claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pysqlbox.worker.handlers import Handler

__all__ = ["plan"]


def plan(messages: list[Any], handlers: Mapping[str, Handler]) -> Iterable[Any]:
    """Items for one thread each: a message, or a list of messages.

    A list is a FIFO group's messages in order, or all those of a topic with a batch handler. A group whose
    messages all have the same batch handler joins that topic's batch, in its order.
    """
    batches = any(handler.batch for handler in handlers.values())
    if not batches and not any(message.group_id is not None for message in messages):
        return messages
    groups: dict[str, list[Any]] = {}
    for message in messages:
        if message.group_id is not None:
            groups.setdefault(message.group_id, []).append(message)
    items: list[Any] = []
    by_topic: dict[str, list[Any]] = {}
    for message in messages:
        group = groups.get(message.group_id, []) if message.group_id is not None else [message]
        if group[0] is not message:
            continue  # went with the first of its group
        handler = handlers.get(message.topic)
        if handler is not None and handler.batch and all(member.topic == message.topic for member in group):
            if message.topic not in by_topic:
                by_topic[message.topic] = []
                items.append(by_topic[message.topic])
            by_topic[message.topic].extend(group)
        else:
            items.append(group if message.group_id is not None else message)
    return items
