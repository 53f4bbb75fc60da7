"""When a worker that sleeps has to get up by itself: known due times, ends of leases, schedules."""

from __future__ import annotations

import time
from datetime import datetime

from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.served_box import NEVER, ServedBox

__all__ = ["alarm"]


def alarm(box: ServedBox, connection: WorkerConnection) -> float:
    """When the box is to be asked again, by this machine's steady clock; NEVER if no time is known.

    How long that is from now the server's clock tells.
    """
    clock = box.name if box.queue.kind == "outbox" else "outbox"
    (now,) = connection.call(f"{clock}_schedule_next", {})
    (due,) = connection.call(f"{box.name}_next_due", {})
    known = [due["due_at"]]
    if clock == box.name:
        known.append(now["now_at"] if now["is_due"] else now["next_at"])
    now_at = now["now_at"]
    waits = [
        (each - now_at).total_seconds()
        for each in known
        if isinstance(each, datetime) and isinstance(now_at, datetime)
    ]
    if not waits:
        return NEVER
    return time.monotonic() + max(min(waits), box.poll_seconds)
