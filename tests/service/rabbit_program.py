"""A consumer as a process of its own: ``URL SCHEMA BROKER QUEUE JOURNAL MODE``.

It writes a line for each message it handles. In the mode ``hang`` it then waits to be killed; in the mode
``unacknowledged`` it is killed by itself when the message is marked and not yet acknowledged.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pysqlbox
from pysqlbox.contrib import rabbitmq
from pysqlbox.idempotent import Idempotent


def main(url: str, schema: str, broker: str, queue: str, journal: str, mode: str) -> None:
    """Consume until killed."""

    def handle(delivery: rabbitmq.Delivery) -> None:
        with Path(journal).open("a", encoding="utf-8") as out:
            out.write(f"{delivery.message_id}\n")
        while mode == "hang":
            time.sleep(1)

    with pysqlbox.connect(url, schema=schema) as db:
        once = Idempotent(db, bus="rabbitmq", group="billing", lease=600, release_on_error=True)
        if mode == "unacknowledged":
            marked = db.ledger.mark_processed

            def die(*arguments: Any, **named: Any) -> int:
                marked(*arguments, **named)
                os.kill(os.getpid(), signal.SIGKILL)
                return 1

            db.ledger.mark_processed = die  # the moment that is meant
        rabbitmq.Consumer(once, broker, queue, handle, retry_seconds=0.1).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
