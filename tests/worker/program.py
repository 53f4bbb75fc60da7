"""A worker process for tests: its handlers write a journal, line by line, of what they began and ended.

Run as ``python -m tests.worker.program URL SCHEMA JOURNAL OPTIONS``, the options of the worker as JSON.
A message's payload says in JSON what its handler does: how long it sleeps, or that it hangs the first time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import pysqlbox


class Journal:
    """Lines appended at once, also by several processes; what is written outlasts a killed process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, message: Any) -> None:
        """One line. The clock is the machine's, the same for all its processes."""
        line = {
            "what": what, "id": message.id, "group": message.group_id, "attempt": message.attempt,
            "pid": os.getpid(), "at": time.monotonic(),
        }  # fmt: skip
        os.write(self._file, json.dumps(line).encode() + b"\n")


def main(url: str, schema: str, journal_path: str, options: str) -> None:
    """Works until a signal comes."""
    journal = Journal(journal_path)
    with pysqlbox.connect(url, schema=schema) as db:
        settings = json.loads(options)
        stop_timeout = settings.pop("stop_timeout", 30.0)
        worker = db.worker(**settings)

        @worker.handler("t")
        def handle(message: Any) -> None:
            wish = json.loads(message.payload)
            journal.write("begin", message)
            if wish.get("hang") and message.attempt == 0:
                time.sleep(600)
            time.sleep(wish.get("sleep", 0))
            journal.write("end", message)

        start = worker.start

        def started() -> None:
            start()
            print("ready", flush=True)

        worker.start = started  # type: ignore[method-assign]  # run() calls it
        worker.run(stop_timeout=stop_timeout)
        stats = worker.stats()
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    print(json.dumps({"left": left, "acked": stats.acked, "released": stats.released}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
