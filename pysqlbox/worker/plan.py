"""What to do together, and in which order, of the messages of one claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pysqlbox.worker.assignment import Assignment

if TYPE_CHECKING:
    from pysqlbox.worker.served_box import ServedBox

__all__ = ["plan"]


def plan(box: ServedBox, messages: list[Any], leased_at: float) -> tuple[list[Assignment], bool]:
    """Assignments in claim order, and whether there were FIFO groups among them.

    One is a message, several that are quickly handled, a group's messages in order, or all those of a topic
    with a batch handler. A group whose messages all have the same batch handler joins that topic's batch, in
    its order.
    """
    handlers = box.handlers.by_topic
    # A list, since most often there are none, and a generator takes twice as long to find that.
    grouped = bool([1 for message in messages if message.group_id is not None])
    if not grouped and not box.handlers.any_batch:
        if len(messages) > 1 and not box.handlers.any_async and box.is_quick(len(messages)):
            return [Assignment(box, messages, leased_at, loose=True)], False
        return [Assignment(box, [message], leased_at) for message in messages], False
    groups: dict[str, list[Any]] = {}
    for message in messages:
        if message.group_id is not None:
            groups.setdefault(message.group_id, []).append(message)
    found: list[tuple[list[Any], bool]] = []
    batches: dict[str, list[Any]] = {}
    for message in messages:
        group = groups[message.group_id] if message.group_id is not None else [message]
        if group[0] is not message:
            continue  # went with the first of its group
        handler = handlers.get(message.topic)
        if handler is None or not handler.batch or any(member.topic != message.topic for member in group):
            found.append((group, False))
        elif message.topic in batches:
            batches[message.topic].extend(group)
        else:
            batches[message.topic] = list(group)
            found.append((batches[message.topic], True))
    return [Assignment(box, each, leased_at, together=together) for each, together in found], grouped
