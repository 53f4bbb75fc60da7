"""A worker process of many stores for tests; what its handlers write commits with their messages.

Run as ``python -m tests.stores.program SOURCE OPTIONS``: a file with the URLs by key, and options, both JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pysqlbox import Stores


def main(source: str, options: str) -> None:
    """Works until a signal comes."""

    def discover() -> dict[str, str]:
        found: dict[str, str] = json.loads(Path(source).read_text())
        return found

    with Stores(discover, refresh_seconds=0.5) as stores:
        worker = stores.worker(**json.loads(options))

        @worker.handler("t", transactional=True)
        def handle(message: Any, context: Any) -> None:
            context.connection.execute("INSERT INTO effects (message) VALUES (%s)", [message.id])
            time.sleep(0.002)

        start = worker.start

        def started() -> None:
            start()
            print("ready", flush=True)

        worker.start = started  # type: ignore[method-assign]  # run() calls it
        worker.run(stop_timeout=5)


if __name__ == "__main__":
    main(*sys.argv[1:])
