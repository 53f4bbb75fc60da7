"""What the worker of the incidents runs: ``pysqlbox work tests.faults.incident_worker:make``.

It appends what it handled to the file that JOURNAL names; the topic mail fails while BROKEN names a file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pysqlbox.worker import Worker, fixed


def make(db: Any) -> Worker:
    """A worker of two topics, of which one cannot always do its work."""
    worker: Worker = db.worker(
        threads=2, poll_seconds=0.1, max_attempts=2, backoff=fixed(0.05), lease_seconds=5
    )
    journal = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @worker.handler("order")
    def order(message: Any) -> None:
        os.write(journal, f"order {message.payload}\n".encode())

    @worker.handler("mail")
    def mail(message: Any) -> None:
        if Path(os.environ.get("BROKEN", "/nowhere")).exists():
            raise LookupError(f"no template 'welcome' for customer {message.payload}")
        os.write(journal, f"mail {message.payload}\n".encode())

    return worker
