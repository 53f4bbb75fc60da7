"""Listening on PostgreSQL through the very connections that are kept for claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pysqlbox.names import quote_identifier
from pysqlbox.stores.servers import Kept
from pysqlbox.worker.served_box import ServedBox

if TYPE_CHECKING:
    from pysqlbox.worker.database_postgres import PostgresConnection

__all__ = ["listen"]


def listen(kept: Kept, wake: Callable[[ServedBox], None]) -> None:
    """Let a connection, which the caller has been lent, hear of all boxes of its database; if none does yet.

    What comes before is seen by the claim for which it was lent, and otherwise as if nobody listened.
    """
    database = kept.database
    heard_of = {channel for channel, box in database.boxes.items() if not box.opens}
    if not heard_of or (database.is_heard and database.heard >= heard_of):
        return
    if database.server.is_over and not kept.used_at and not database.is_busy:
        return  # it may have to make way at once
    connection: PostgresConnection = kept.worker  # type: ignore[assignment]  # PostgreSQL's

    def heard(notify: Any) -> None:
        box = database.boxes.get(notify.channel)
        if box is not None:
            wake(box)

    text = ";".join(f"LISTEN {quote_identifier('postgres', channel)}" for channel in sorted(heard_of))
    before = database.ear
    kept.ear = connection.listen(text, heard)
    database.ear, database.heard = kept, heard_of
    if before is not None and before is not kept:
        before.ear = None  # it goes on listening, which wakes nobody twice
