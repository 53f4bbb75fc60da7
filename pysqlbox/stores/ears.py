"""Listening on PostgreSQL through the very connections that are kept for claims."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from pysqlbox.names import quote_identifier
from pysqlbox.stores.servers import Kept
from pysqlbox.worker.served_box import ServedBox

if TYPE_CHECKING:
    from pysqlbox.worker.database_postgres import PostgresConnection

__all__ = ["listen"]

#: While one connection listens, another one takes over for the sake of new boxes no more often than this.
TAKE_OVER_SECONDS = 1.0
#: What a connection has at the end of its name that was told of something: behind a pooler none is.
NAME_ADDED = " (listens)"


def listen(kept: Kept, wake: Callable[[ServedBox], None]) -> None:
    """Let a connection, which the caller has been lent, hear of all boxes of its database; if none does yet.

    What comes before is seen by the claim for which it was lent, and otherwise as if nobody listened.
    """
    database = kept.database
    if kept.has_heard and not kept.is_named:
        # Its last statement is none that listens, as that of a worker's listener is: doctor goes by the name.
        connection = cast("PostgresConnection", kept.worker)
        connection.add_to_name(NAME_ADDED)
        kept.is_named = True
    heard_of = {channel for channel, box in database.boxes.items() if not box.opens}
    ear = database.ear if database.is_heard else None
    if not heard_of or (ear is not None and ear.heard >= heard_of):
        return
    now = time.monotonic()
    if ear not in (None, kept) and now - database.listened_at < TAKE_OVER_SECONDS:
        return
    if database.server.is_over and not kept.used_at and not database.is_busy:
        return  # it may have to make way at once
    connection = cast("PostgresConnection", kept.worker)

    def heard(notify: Any) -> None:
        kept.has_heard = True
        box = database.boxes.get(notify.channel)
        if box is not None:
            wake(box)

    knows = kept.ear is not None and not kept.ear.closed
    new = heard_of - kept.heard if knows else heard_of
    names = [quote_identifier("postgres", channel) for channel in sorted(new)]
    text = ";".join(f"LISTEN {name}" for name in names)
    if not knows:
        kept.has_heard = kept.is_named = False
        text += f";NOTIFY {names[0]}"  # so that it shows whether anything comes
    before = database.ear
    kept.ear = connection.listen(text, None if knows else heard)
    kept.heard = heard_of
    database.ear, database.listened_at = kept, now
    if before is not None and before is not kept:
        before.ear = None  # it goes on listening, which wakes nobody twice
